"""The page of ``rackfit serve``: a question by lists and sliders, its answer, its chips, and answers side by side.

It asks the JSON API of the same server and nothing else. The address holds the question.
"""

from __future__ import annotations

from functools import lru_cache

from rackfit.quoting import markup, script_json
from rackfit.report.page import page
from topology.catalogue import catalogue_names
from topology.load import cluster_names

_STYLE = (
    "form{display:grid;grid-template-columns:repeat(auto-fit,minmax(15em,1fr));gap:.6em 1.2em}"
    "form label{display:grid;gap:.2em}form select,form input{width:100%;min-width:0;font:inherit}"
    ".headline{min-height:6em;margin:1em 0}.headline p{margin:.3em 0}.bad{color:#b3261e}"
    "@media (prefers-color-scheme:dark){.bad{color:#ff8a80}}"
    ".chips{display:flex;flex-wrap:wrap;gap:3px;margin:.3em 0 1em}.chips button{width:2.9em;height:2.4em;padding:0;"
    "font:11px system-ui,sans-serif;border:1px solid var(--line);border-radius:4px;color:#fff;background:#666}"
    ".chips .prefill{background:#0072b2}.chips .decode{background:#a04600}.chips .mixed{background:#00704f}"
    "button:focus-visible,select:focus-visible,input:focus-visible{outline:3px solid var(--link)}"
    "pre{background:var(--soft);padding:.6em 1em;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere}"
    ".actions{display:flex;gap:.6em;flex-wrap:wrap}.actions button{font:inherit;padding:.3em .9em}"
)
_SCRIPT = """
(() => {
  const $ = id => document.getElementById(id), form = $('asked'), root = document.documentElement;
  const fields = ['model', 'cluster', 'domains', 'workload', 'ttft', 'tpot', 'rate'];
  const seconds = id => +(10 ** +$(id).value).toPrecision(2), word = x => String(+(+x).toPrecision(4));
  const add = (parent, tag, text, more) => parent.appendChild(Object.assign(document.createElement(tag), {textContent: text, ...more}));
  const row = (table, cells, tag) => { const line = add(table, 'tr', ''); cells.forEach(c => add(line, tag || 'td', c)); };
  const defaults = TOLD;
  let answer = null, asking = null, waiting = 0, kept = [];
  const restore = () => {
    const told = {...defaults, ...Object.fromEntries(new URLSearchParams(location.hash.slice(1)))};
    for (const name of fields) if (told[name] !== undefined) $(name).value = told[name];
  };
  const question = () => ({
    scenario: {
      model: $('model').value, cluster: $('cluster').value + (+$('domains').value > 1 ? '@' + $('domains').value : ''),
      workload: $('workload').value, slo: {ttft: seconds('ttft'), tpot: seconds('tpot')},
      ...(+$('rate').value > 0 ? {rate: +$('rate').value} : {}),
    }, gap: 0.02,
  });
  const say = () => {
    $('ttft-said').textContent = word(1e3 * seconds('ttft')) + ' ms';
    $('tpot-said').textContent = word(1e3 * seconds('tpot')) + ' ms';
    for (const id of ['ttft', 'tpot']) $(id).setAttribute('aria-valuetext', $(id + '-said').textContent);
  };
  const shapes = found => {
    const counts = new Map();
    for (const replica of found.layout.replicas) {
      const shape = replica.shape, chips = replica.stages.reduce((n, stage) => n + stage.chips.length, 0);
      const key = [replica.role, chips, shape.tp, shape.ep, shape.pp, shape.attention_dp, shape.batch].join('|');
      counts.set(key, (counts.get(key) || 0) + 1);
    }
    return counts;
  };
  const drawChips = found => {
    const box = $('racks');
    box.replaceChildren();
    found.layout.replicas.forEach((replica, number) => {
      const what = `${replica.role} replica ${number}`;
      add(box, 'div', what);
      const line = add(box, 'div', '', {className: 'chips'});
      replica.stages.forEach((stage, index) => stage.chips.forEach((chip, place) => {
        const button = add(line, 'button', chip, {type: 'button', className: replica.role, title: what});
        button.addEventListener('click', () => {
          const gb = Object.entries(found.memory[chip]).map(([kind, size]) => `  ${kind}: ${word(size / 1e9)} GB`);
          const kv = replica.kv.filter(one => one.chip === chip).map(one => `  ${one.tier}: ${one.sequences} sequences`);
          const maps = stage.expert_map && found.layout.expert_maps[stage.expert_map], first = maps && Object.keys(maps)[0];
          const slots = stage.slots_per_chip, size = Array.isArray(slots) ? slots[place] : slots;
          const start = Array.isArray(slots) ? slots.slice(0, place).reduce((a, b) => a + b, 0) : slots * place;
          const experts = maps ? [`experts of layer ${first}: ${maps[first].slice(start, start + size).join(', ')}`] : [];
          $('chip').textContent = [`${chip}: ${what}, stage ${index}`, `layers ${stage.layers[0]} to ${stage.layers[1]}`,
            ...experts, 'memory:', ...gb, ...(kv.length ? ['KV:', ...kv] : [])].join('\\n');
        });
      }));
    });
    const links = Object.entries(found.links.uplinks).map(([name, one]) => `${name}: ${word(100 * one.utilisation)} % of its uplinks`);
    $('chip').textContent = 'Choose a chip to see its experts, layers, KV and memory.\\n' + links.join('\\n');
  };
  const show = found => {
    const e = found.evaluation, box = $('answer');
    box.replaceChildren();
    add(box, 'p', `$${e.usd_per_m_output_tokens.toFixed(4)} per million output tokens`, {className: 'cost'});
    add(box, 'p', `Proven: none that the proof covers costs less than $${(Math.floor(1e4 * found.certificate.bound_usd_per_m_output_tokens) / 1e4).toFixed(4)}; this one at most ${(Math.ceil(1e4 * found.certificate.gap) / 1e2).toFixed(2)} % more.`);
    add(box, 'p', `${Math.round(e.output_tokens_per_s).toLocaleString('en')} output tokens/s on ${e.chips_used} of ${e.chips_total} chips; TTFT ${word(1e3 * e.ttft_s)} ms, TPOT ${word(1e3 * e.tpot_s)} ms.`);
    if (e.bottleneck) add(box, 'p', `Limited by ${e.bottleneck}.`);
    if (e.assumed.length) add(box, 'p', `Assumed: ${e.assumed.join('; ')}.`);
    const table = $('shapes');
    table.replaceChildren();
    row(table, ['replicas', 'role', 'chips', 'tp', 'ep', 'pp', 'attention dp', 'batch'], 'th');
    for (const [key, count] of shapes(found)) row(table, [count, ...key.split('|')]);
    drawChips(found);
    $('keep').disabled = $('save').disabled = false;
  };
  const ask = async () => {
    say();
    const own = new URLSearchParams(fields.map(name => [name, $(name).value]));
    history.replaceState(null, '', '#' + own);
    if (asking) asking.abort();
    const mine = asking = new AbortController(), asked = question();
    root.dataset.state = 'asking';
    $('state').textContent = 'Searching and proving.';
    $('keep').disabled = $('save').disabled = true;
    try {
      const reply = await fetch('/api/solve', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(asked), signal: mine.signal});
      const found = await reply.json();
      if (mine !== asking) return;
      if (found.error) {
        answer = null;
        for (const id of ['answer', 'shapes', 'racks', 'chip']) $(id).replaceChildren();
        for (const problem of found.error.problems) add($('answer'), 'p', [problem.place, problem.message].filter(Boolean).join(': '), {className: 'bad'});
      } else {
        answer = {asked, found};
        show(found);
      }
      $('state').textContent = '';
      root.dataset.state = found.error ? found.error.kind : 'answered';
    } catch (error) {
      if (mine !== asking || error.name === 'AbortError') return;
      $('state').textContent = 'The server does not answer.';
      root.dataset.state = 'lost';
    }
  };
  $('keep').addEventListener('click', () => {
    kept.push(answer);
    const table = $('kept'), first = kept[0].found.evaluation.usd_per_m_output_tokens;
    table.replaceChildren();
    row(table, ['model', 'cluster', 'workload', 'TTFT', 'TPOT', '$/M output', 'gap', 'against the first'], 'th');
    for (const {asked, found} of kept) {
      const s = asked.scenario, cost = found.evaluation.usd_per_m_output_tokens;
      row(table, [s.model, s.cluster, s.workload, word(1e3 * s.slo.ttft) + ' ms', word(1e3 * s.slo.tpot) + ' ms', cost.toFixed(4),
        (Math.ceil(1e4 * found.certificate.gap) / 1e2).toFixed(2) + ' %', (100 * (cost / first - 1)).toFixed(1) + ' %']);
    }
  });
  $('save').addEventListener('click', () => {
    const link = Object.assign(document.createElement('a'), {download: 'layout.json'});
    link.href = URL.createObjectURL(new Blob([JSON.stringify(answer.found, null, 1) + '\\n'], {type: 'application/json'}));
    link.click();
    URL.revokeObjectURL(link.href);
  });
  form.addEventListener('submit', event => event.preventDefault());
  form.addEventListener('input', () => { say(); clearTimeout(waiting); waiting = setTimeout(ask, 250); });
  addEventListener('hashchange', () => { restore(); ask(); });
  restore();
  ask();
})();
"""
_DEFAULTS = {
    "model": "deepseek-v3", "cluster": "gb200-nvl72", "domains": "1", "workload": "chat",
    "ttft": "0.3", "tpot": "-1.5", "rate": "",
}  # fmt: skip


@lru_cache(maxsize=1)
def explore_page() -> str:
    """The page, with the names of the catalogue."""
    controls = [
        _choice("model", "Model", catalogue_names("models", (".json",))),
        _choice("cluster", "Cluster", cluster_names()),
        _number("domains", "Racks or nodes", 'min="1" max="64" step="1" required'),
        _choice("workload", "Workload", catalogue_names("workloads")),
        _slider("ttft", "Target: time to first token", -1.5, 1.5),
        _slider("tpot", "Target: time per output token", -2.5, -0.5),
        _number("rate", "Requests/s (empty: fill the cluster)", 'min="0" step="any"'),
    ]
    sections = [
        f'<form id="asked">{"".join(controls)}</form>',
        '<p id="state" role="status" aria-live="polite"></p><div class="headline" id="answer"></div>',
        '<div class="actions"><button type="button" id="keep" disabled>Keep to compare</button>'
        '<button type="button" id="save" disabled>Save layout.json</button></div>',
        '<h2>What to deploy</h2><div class="wide" tabindex="0" role="region" aria-label="replicas">'
        '<table id="shapes"></table></div>',
        '<h2>Where it is</h2><div id="racks"></div><pre id="chip" aria-live="polite"></pre>',
        '<h2>Side by side</h2><div class="wide" tabindex="0" role="region" aria-label="answers that were kept">'
        '<table id="kept"></table></div>',
        f"<script>{_SCRIPT.replace('TOLD', script_json(_DEFAULTS))}</script>",
    ]
    return page(
        "Rackfit: the cheapest layout, and how near to the least possible cost", sections, _STYLE
    )


def _choice(name: str, words: str, values: list[str]) -> str:
    options = "".join(f"<option>{markup(value)}</option>" for value in values)
    return f'<label><span>{markup(words)}</span><select id="{name}">{options}</select></label>'


def _number(name: str, words: str, more: str) -> str:
    return f'<label><span>{markup(words)}</span><input id="{name}" type="number" {more}></label>'


def _slider(name: str, words: str, least: float, most: float) -> str:
    """Of powers of ten, in seconds."""
    return (
        f'<label for="{name}"><span>{markup(words)}: <output id="{name}-said"></output></span>'
        f'<input id="{name}" type="range" min="{least}" max="{most}" step="0.05"></label>'
    )
