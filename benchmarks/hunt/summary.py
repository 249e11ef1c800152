"""What a hunt found so far, read from its file."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

#: failures printed of each kind
_SHOWN = 12


def read_outcomes(path: Path) -> dict[int, dict[str, Any]]:
    """Outcomes by seed; a line cut off by an interrupt is left out."""
    found: dict[int, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.is_file() else ():
        try:
            data = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[data["seed"]] = data
    return found


def summary(outcomes: dict[int, dict[str, Any]]) -> str:
    """Questions, answers, uplinks that bind, slowest, and every kind of failure with its seeds."""
    rows = list(outcomes.values())
    answers = Counter(row["answer"] for row in rows)
    binding = Counter(row["binding"] for row in rows)
    solved = [row for row in rows if row["cost"] is not None]
    slowest = sorted(rows, key=lambda row: -row["solve_s"])[:5]
    failed = [row for row in rows if row["failures"]]
    lines = [
        f"questions          {len(rows)}: "
        + ", ".join(f"{count} {answer}" for answer, count in answers.most_common()),
        f"solved             {len(solved)}, of them {sum(row['gap'] <= 0.01 for row in solved)} within 1 %",
        f"related questions  {sum(row['relations'] for row in rows)}",
        f"uplink binds       {binding['proven']} proven, {binding['found']} more found",
        "slowest            "
        + ", ".join(f"{row['solve_s']:.1f} s (seed {row['seed']})" for row in slowest),
        f"failures           {len(failed)} questions",
    ]
    kinds: dict[str, list[tuple[int, str]]] = {}
    for row in failed:
        for one in row["failures"]:
            kinds.setdefault(one["kind"], []).append((row["seed"], one["detail"]))
    for kind, found in sorted(kinds.items(), key=lambda item: -len(item[1])):
        lines.append(f"  {kind}: {len(found)}")
        lines += [f"    seed {seed}: {detail[:200]}" for seed, detail in found[:_SHOWN]]
        if len(found) > _SHOWN:
            seeds = ", ".join(str(seed) for seed, _ in found[_SHOWN:])
            lines.append(f"    and seeds {seeds}")
    return "\n".join(lines)
