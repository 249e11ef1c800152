"""Facts of a serving engine, taken where it is installed: its arguments and the model classes it has.

::

    python tools/engine_facts.py write instances/engines/vllm/0.33.yaml    put the facts into a file
    python tools/engine_facts.py check instances/engines/vllm/0.33.yaml    are they still those of the engine
    python tools/engine_facts.py diff  OLD.yaml NEW.yaml                   what changed, as a table

``write`` and ``check`` run in the engine's own environment (a GPU is not needed); they need PyYAML, which
every engine brings along, and nothing of Rackfit. What a person read in the engine's sources stands in the
same file before the line :data:`MARK`; each statement under ``evidence`` quotes a file of the engine, and
``check`` looks the words up there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from engine_arguments import arguments_of
from engine_models import models_of, root_of, version_of

MARK = "# ---- below: taken by tools/engine_facts.py from the installed engine, not written by hand"


def taken(engine: str) -> dict[str, Any]:
    """What the installed engine says of itself."""
    return {
        "taken_from": version_of(engine),
        "models": models_of(engine),
        "arguments": arguments_of(engine),
    }


def as_text(facts: dict[str, Any]) -> str:
    """The facts as YAML, one argument per line."""
    lines = [f"taken_from: {facts['taken_from']!r}", "models:"]
    for name, classes in facts["models"].items():
        lines += [f"  {name}:{'' if classes else ' []'}", *(f"    - {one}" for one in classes)]
    lines.append("arguments:")
    for name, spec in facts["arguments"].items():
        flow = yaml.safe_dump(spec, default_flow_style=True, sort_keys=False, width=10**9)
        lines.append(f"  {name}: {flow.strip()}")
    return "\n".join(lines) + "\n"


def lost_evidence(data: dict[str, Any]) -> list[str]:
    """Statements whose words are not in the engine's file any more."""
    lost = []
    for one in data.get("evidence", ()):
        path = root_of(data["engine"]) / one["file"]
        text = " ".join(path.read_text(encoding="utf-8").split()) if path.is_file() else ""
        if " ".join(one["words"].split()) not in text:
            lost.append(f"{one['says']}: {one['words']!r} is not in {one['file']}")
    return lost


def write(path: Path) -> int:
    """Put the installed engine's facts into a file, after what was written by hand."""
    before = path.read_text(encoding="utf-8").partition(MARK)[0]
    engine = yaml.safe_load(before)["engine"]
    path.write_text(f"{before}{MARK}\n{as_text(taken(engine))}", encoding="utf-8")
    return check(path)


def check(path: Path) -> int:
    """Compare a file with the installed engine; prints what differs."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    found = taken(data["engine"])
    differing = [key for key, value in found.items() if data.get(key) != value]
    lost = lost_evidence(data)
    for key in differing:
        print(f"{path}: {key} is not what {found['taken_from']} says")
    for line in lost:
        print(f"{path}: {line}")
    if not differing and not lost:
        count = len(data.get("evidence", ()))
        print(
            f"{path}: {len(found['arguments'])} arguments and {len(found['models']['served'])} model classes "
            f"as in {found['taken_from']}; {count} quoted statements found"
        )
    return 1 if differing or lost else 0


def diff(old: Path, new: Path) -> int:
    """Print the difference between two versions as a Markdown table."""
    before, after = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in (old, new))
    rows = []
    for kind in sorted(set(before["models"]) | set(after["models"])):
        one, two = set(before["models"].get(kind, ())), set(after["models"].get(kind, ()))
        rows += [(f"model class, {kind}", name, "-", "new") for name in sorted(two - one)]
        rows += [(f"model class, {kind}", name, "there", "gone") for name in sorted(one - two)]
    one, two = before["arguments"], after["arguments"]
    for name in sorted(set(one) | set(two)):
        if one.get(name) != two.get(name):
            rows.append(("argument", name, _said(one.get(name)), _said(two.get(name))))
    by_hand = (set(before) | set(after)) - {
        "models",
        "arguments",
        "taken_from",
        "version",
        "read",
        "evidence",
    }
    for name in sorted(by_hand):
        if before.get(name) != after.get(name):
            rows.append(("read by hand", name, _said(before.get(name)), _said(after.get(name))))
    print(f"| what | name | {before['version']} | {after['version']} |")
    print("|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    return 0


def _said(value: Any) -> str:
    if value is None:
        return "-"
    return str(value).replace("|", "/")


def main(words: list[str]) -> int:
    """Run one command; 0 if all is well."""
    commands = {"write": (write, 1), "check": (check, 1), "diff": (diff, 2)}
    command, count = commands.get(words[0] if words else "", (None, 0))
    if command is None or len(words) != count + 1:
        print(__doc__)
        return 2
    return command(*(Path(word) for word in words[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
