"""Pages of the site that are made from the program itself: front page, command line, Python API.

A hook of MkDocs (see ``mkdocs.yml``); the functions that write text need no MkDocs and are tested
without it.
"""

from __future__ import annotations

import enum
import inspect
import re
import typing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Headings of the API page and the names under each; every public name is under one (tested).
API = {
    "Ask": ("solve", "solve_together", "evaluate", "place", "study"),
    "Questions": (
        "Scenario", "Workload", "Slo", "Prices", "Limits", "Instance", "load_scenario",
        "resolve_instance", "Together", "load_together",
    ),
    "Models and clusters": ("load_model", "load_cluster", "ModelSpec", "Cluster"),
    "Answers": ("Result", "Layout", "Evaluation", "Certificate", "Progress", "Divided"),
    "Deploy and import": ("export_layout", "Exported", "evaluate_running", "Running"),
    "Expert placement": ("PlaceOptions", "Placed", "ExpertLoads"),
    "Studies": ("StudyResult",),
    "Data frames": ("replicas_frame", "chips_frame", "trajectory_frame", "study_frame"),
    "Errors": (
        "RackfitError", "InstanceError", "NoFeasibleLayout", "NoLayoutInTime", "ExportError",
        "VerificationError", "Problem",
    ),
}  # fmt: skip

EXAMPLE = """
import rackfit

scenario = rackfit.Scenario(
    model="llama-3.1-8b", cluster="hgx-h100", workload="chat", slo={"ttft": "1 s", "tpot": "20 ms"}
)
try:
    result = rackfit.solve(scenario)
except rackfit.NoFeasibleLayout as why:
    print(why)  # names the limit, and what would fit
    raise
print(result.evaluation.usd_per_m_output_tokens, result.certificate.gap)

frame = rackfit.replicas_frame(result)  # pandas: one row per replica
print(frame[["role", "chips", "batch", "requests_per_s"]])

files = rackfit.export_layout(result.instance, result.layout, "vllm").files
print(files["commands.sh"])

again = rackfit.evaluate(scenario, result.layout)  # from scratch, without the solver
assert again.feasible
assert again.usd_per_m_output_tokens == result.evaluation.usd_per_m_output_tokens

question = scenario.model_dump(mode="json", exclude_none=True)
tighter = rackfit.study("grid", question, over={"slo.tpot": [0.01, 0.02]})
print(rackfit.study_frame(tighter)[["slo.tpot", "usd_per_m_output_tokens"]])
"""


def api_page() -> str:
    """The reference of every public name."""
    import rackfit

    lines = [
        "# Python API", "", "Everything below is `import rackfit`; `rackfit.__all__` lists it.", "",
        "```python", EXAMPLE.strip(), "```", "",
    ]  # fmt: skip
    for title, names in API.items():
        lines += [f"## {title}", ""]
        if title == "Errors":
            import topology.errors

            tree = (topology.errors.__doc__ or "").split("::", 1)[1]
            lines += ["```text", *(line[4:] for line in tree.strip("\n").splitlines()), "```", ""]
        for name in names:
            lines += [f"::: {rackfit._HOME[name]}.{name}", ""]
    return "\n".join(lines)


def command_page() -> str:
    """The reference of the command line, from the signatures of its commands."""
    from rackfit.cli.app import build_app

    app = build_app()
    lines = [
        "# Command line", "", str(app.info.help), "",
        "Exit codes: 0 done, 1 nothing fits (and why), 2 bad input, 3 no layout within the time "
        "limit, 4 a failed verification (a bug). Results go to stdout or `--out`, messages and "
        "progress to stderr.", "",
    ]  # fmt: skip
    for command in sorted(app.registered_commands, key=lambda found: str(found.name)):
        lines += _command(str(command.name), command.callback)
    return "\n".join(lines)


def _command(name: str, callback: Any) -> list[str]:
    """Heading, words, usage and tables of one command."""
    arguments, options, usage = [], [], [f"rackfit {name} [OPTIONS]"]
    for parameter in inspect.signature(callback, eval_str=True).parameters.values():
        kind, info = parameter.annotation.__origin__, parameter.annotation.__metadata__[0]
        if type(info).__name__ == "ArgumentInfo":
            title = parameter.name.upper()
            usage.append(title if parameter.default is parameter.empty else f"[{title}]")
            arguments.append(_row(title, kind, parameter.default, info.help))
        else:
            said = [info.default, *(info.param_decls or ())]
            named = [flag for flag in said if isinstance(flag, str) and flag.startswith("-")]
            flags = ", ".join(named) or f"--{parameter.name.replace('_', '-')}"
            options.append(_row(flags, kind, parameter.default, info.help))
    lines = [f"## rackfit {name}", "", *inspect.getdoc(callback).splitlines(), ""]
    lines += ["```text", " ".join(usage), "```", ""]
    for title, rows in (("argument", arguments), ("option", options)):
        if rows:
            lines += [f"| {title} | value | default | |", "|---|---|---|---|", *rows, ""]
    return lines


def _row(name: str, kind: Any, default: Any, text: str | None) -> str:
    """One line of a table of parameters."""
    if default is inspect.Parameter.empty:
        shown = "required"
    else:
        shown = "" if default in (None, False) else str(getattr(default, "value", default))
    words = (text or "").replace("|", "\\|").replace("\n", " ")
    return f"| `{name}` | {_values(kind)} | {shown} | {words} |"


def _values(kind: Any) -> str:
    """What may be given for a type."""
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return " or ".join(f"`{member.value}`" for member in kind)
    parts = [part for part in typing.get_args(kind) if part is not type(None)]
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(f"`{value}`" for value in parts)
    if parts:
        return " or ".join(_values(part) for part in parts)
    return {bool: "", str: "text", int: "integer", float: "number"}.get(kind, "path")


def front_page(readme: str) -> str:
    """README.md as the first page: links into ``docs`` are links between pages."""
    text = re.sub(r"`docs/([\w-]+)\.md`", r"[\1](\1.md)", readme)
    text = re.sub(r"\]\(docs/([\w-]+)\.md", r"](\1.md", text)
    return text.replace("`CONTRIBUTING.md`", "[contributing](contributing.md)")


def made_pages() -> dict[str, str]:
    """Every page that is not a file of ``docs``, by its path."""
    return {
        "index.md": front_page((ROOT / "README.md").read_text(encoding="utf-8")),
        "command-line.md": command_page(),
        "api.md": api_page(),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        "contributing.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
    }


def on_config(config: Any) -> Any:
    """Pages that other work may add are in the navigation where they exist."""
    listed = str(config.nav)
    for path in sorted((ROOT / "docs").glob("*.md")):
        if path.name not in listed:
            config.nav.insert(-2, {path.stem.replace("-", " ").capitalize(): path.name})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made."""
    from mkdocs.structure.files import File

    for path, text in made_pages().items():
        files.append(File.generated(config, path, content=text))
    return files
