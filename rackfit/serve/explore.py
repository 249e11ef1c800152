"""The page of ``rackfit serve``: a question, its answer, its chips and files, what runs today, answers side by side.

It asks the JSON API of the same server and nothing else. The address holds what was asked.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import get_args

from rackfit.cli.commands.export import TARGETS
from rackfit.quoting import markup, script_json
from rackfit.report.page import page
from rackfit.serve.asked import Engine
from rackfit.serve.offered import MOST_CHARACTERS
from topology.catalogue import catalogue_names
from topology.load import cluster_names

_STYLE = (
    "form{display:grid;align-items:end;grid-template-columns:repeat(auto-fit,minmax(15em,1fr));gap:.6em 1.2em}"
    "label{display:grid;gap:.2em}label.line{display:flex;align-items:center;gap:.5em}"
    "select,input,textarea{width:100%;min-width:0;font:inherit}input[type=checkbox]{width:1.2em;height:1.2em;flex:none}"
    "textarea{font:13px/1.5 ui-monospace,monospace;min-height:7em;overflow-wrap:anywhere}"
    "select,textarea,input[type=number],input[type=text]{color:inherit;background:var(--paper);border:1px solid var(--line);border-radius:4px;padding:.3em .4em}"
    ".headline{min-height:6em;margin:1em 0}.headline p{margin:.3em 0}.bad{color:#b3261e}"
    "@media (prefers-color-scheme:dark){.bad{color:#ff8a80}}"
    "#racks{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(17em,100%),1fr));gap:.6em 1.2em}"
    ".chips{display:flex;flex-wrap:wrap;gap:3px;margin:.3em 0}.chips button{width:2.9em;height:2.4em;padding:0;"
    "font:11px system-ui,sans-serif;border:1px solid var(--line);border-radius:4px;color:#fff;background:#666}"
    ".chips .prefill{background:#0072b2}.chips .decode{background:#a04600}.chips .mixed{background:#00704f}"
    ".chips [aria-pressed=true]{box-shadow:0 0 0 3px var(--ink)}"
    ":is(button,select,input,textarea,summary,pre,.wide):focus-visible{outline:3px solid var(--link);outline-offset:2px}"
    "pre{background:var(--soft);padding:.6em 1em;white-space:pre-wrap;overflow-wrap:anywhere;font-size:13px}pre:empty{display:none}#chip{max-height:32em;overflow-y:auto}"
    ".actions{display:flex;gap:.6em 1em;flex-wrap:wrap;align-items:end;margin:.6em 0}"
    ".actions button{font:inherit;padding:.35em .9em;color:inherit;background:var(--soft);border:1px solid var(--line);border-radius:4px}"
    ".actions button:disabled{opacity:.55}.actions label{flex:0 1 18em}.actions label.line{flex:0 1 auto}#words p,#exported p{margin:.3em 0}[hidden]{display:none!important}"
)
#: ms that a control rests before the page asks
PAUSE_MS = 40
_SCRIPTS = ("explore.js", "tasks.js")
#: the choice of no traffic: requests of the workload's lengths, evenly
STEADY = "even, of one length"
_DEFAULTS = {
    "model": "deepseek-v3", "cluster": "gb200-nvl72", "domains": "1", "workload": "chat",
    "ttft": "0.3", "tpot": "-1.5", "worth": "0", "traffic": STEADY, "rate": "", "runs": "any", "engine": "vllm",
    "launch": "",
}  # fmt: skip


@lru_cache(maxsize=1)
def explore_page() -> str:
    """The page, with the names of the catalogue."""
    controls = [
        _choice("model", "Model", catalogue_names("models", (".json",))),
        _choice("cluster", "Cluster", cluster_names()),
        _slider("domains", "Racks or nodes", 1, 16, 1),
        _choice("workload", "Workload", catalogue_names("workloads")),
        _slider("ttft", "Target: time to first token", -1.5, 1.5),
        _slider("tpot", "Target: time per output token", -2.5, -0.5),
        _slider("worth", "Price of a chip, times the catalogue's", -1.0, 1.0),
        _choice("traffic", "Requests", [STEADY, *catalogue_names("traffic")]),
        _choice("runs", "Engine that has to run it", ["any", *get_args(Engine)]),
        _number("rate", "Requests/s (empty: fill the cluster)", 'min="0" step="any"'),
        "<label><span>Your own model, cluster, workload or traffic</span>"
        '<input id="own" type="file" multiple accept=".json,.yaml,.csv"></label>',
    ]
    here = Path(__file__).parent
    script = "\n".join((here / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    script = script.replace("DEFAULTS", script_json(_DEFAULTS)).replace("PAUSE_MS", str(PAUSE_MS))
    script = script.replace("STEADY", script_json(STEADY)).replace(
        "MOST_CHARACTERS", str(MOST_CHARACTERS)
    )
    sections = [
        f'<form id="asked">{"".join(controls)}</form>',
        '<div id="owned" role="status"></div>'
        '<p id="state" role="status" aria-live="polite"></p><div class="headline" id="answer"></div>',
        f"<details><summary>How it is proven</summary>{_table('proof', 'states of the search')}</details>",
        f'<div class="actions">{_button("keep", "Keep to compare")}{_button("save", "Save layout.json")}</div>',
        f"<h2>What to deploy</h2>{_table('shapes', 'replicas')}",
        "<h2>Files to take along</h2>",
        f'<div class="actions">{_choice("target", "For", list(TARGETS), "vllm")}'
        '<label><span>Where the weights lie</span><input id="path" type="text" placeholder="/models/NAME"></label>'
        '<label class="line"><input id="nearest" type="checkbox"><span>Or the nearest that it can say</span></label>'
        f'{_button("export", "Export files")}</div><div id="exported" role="status"></div>',
        '<h2>Where it is</h2><p class="note">Prefill is blue, decode brown, both in one green; grey chips are not in use.</p><div id="racks"></div><pre id="chip" tabindex="0" role="region" aria-label="the chosen chip" aria-live="polite"></pre>',
        "<h2>What runs today</h2>"
        "<label><span>The commands that start your servers, for the model, cluster, workload and targets above</span>"
        '<textarea id="launch" rows="5" spellcheck="false" autocomplete="off"></textarea></label>',
        f'<div class="actions">{_choice("engine", "Engine", list(get_args(Engine)))}'
        f"{_button('price', 'Price it', '')}{_button('keep-today', 'Keep it to compare')}</div>"
        '<div id="today" role="status"></div>',
        f"<h2>Side by side</h2>{_table('kept', 'answers that were kept')}",
        f'<div id="pair" hidden><div class="actions">{_choice("from", "From", [])}{_choice("to", "to", [])}</div>'
        '<div id="words" class="wide" tabindex="0" role="region" aria-label="the change in words"></div></div>',
        f"<script>(() => {{\n{script}}})();</script>",
    ]
    return page(
        "Rackfit: the cheapest layout, and how near to the least possible cost", sections, _STYLE
    )


def _table(name: str, label: str) -> str:
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{markup(label)}">'
        f'<table id="{name}"></table></div>'
    )


def _button(name: str, words: str, more: str = "disabled") -> str:
    return f'<button type="button" id="{name}" {more}>{markup(words)}</button>'


def _choice(name: str, words: str, values: list[str], chosen: str = "") -> str:
    options = "".join(
        f"<option{' selected' if value == chosen else ''}>{markup(value)}</option>"
        for value in values
    )
    return f'<label><span>{markup(words)}</span><select id="{name}">{options}</select></label>'


def _number(name: str, words: str, more: str) -> str:
    return f'<label><span>{markup(words)}</span><input id="{name}" type="number" {more}></label>'


def _slider(name: str, words: str, least: float, most: float, step: float = 0.05) -> str:
    """Of powers of ten, where the step is not whole."""
    return (
        f'<label for="{name}"><span>{markup(words)}: <output id="{name}-said"></output></span>'
        f'<input id="{name}" type="range" min="{least}" max="{most}" step="{step}"></label>'
    )
