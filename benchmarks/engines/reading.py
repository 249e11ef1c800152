"""The engines read what was exported: tools/engine_reads.py in their environments, and what came of it.

TensorRT-LLM's files are read beside the facts of its sources (:mod:`benchmarks.engines.trtllm_files`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.engines.deployments import Deployment, deployments
from benchmarks.engines.trtllm_files import read_files
from rackfit.documents.result import read_result
from topology.catalogue import data_dir

TOOL = Path(__file__).resolve().parents[2] / "tools" / "engine_reads.py"
#: GPUs that the tool can pretend, by the chip of a cluster
DEVICES = ("gb200", "b200", "h200", "h100")


def device_of(one: Deployment) -> str:
    """The GPU of a deployment's cluster."""
    return next(name for name in DEVICES if name in one.cluster)


def read(folder: Path, pythons: dict[str, str]) -> bool:
    """Have each engine (name to its environment's Python) read its exports; ``reads.jsonl``. Whether all was read."""
    configs, out = folder / "configs", folder / "reads.jsonl"
    again = {row["folder"] for row in rows(out) if _refused(row)}
    kept = [row for row in rows(out) if row["folder"] not in again]
    out.write_text("".join(json.dumps(row) + "\n" for row in kept))
    done = {row["folder"] for row in kept}
    groups: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for one in deployments():
        if one.engine in pythons and (folder / one.name).is_dir() and one.name not in done:
            groups[one.engine, device_of(one)].append(folder / one.name)
            config = configs / one.model / "config.json"
            config.parent.mkdir(parents=True, exist_ok=True)
            config.write_text((data_dir("models") / f"{one.model}.json").read_text())
    codes = [
        subprocess.run(
            [pythons[engine], str(TOOL), str(out), str(configs), device, *map(str, folders)],
            stdout=subprocess.DEVNULL,
            check=False,
        ).returncode
        for (engine, device), folders in groups.items()
    ]
    refused = [row for row in rows(out) if _refused(row)]
    rows_of_files = [
        read_files(read_result(folder / f"{one.name}.json")[0], folder / one.name)
        for one in deployments()
        if one.engine == "trtllm" and (folder / one.name).is_dir()
    ]
    (folder / "files.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows_of_files))
    refused += [row for row in rows_of_files if row["problems"]]
    for row in refused:
        print(
            f"{row['folder']}: {row.get('error') or row.get('problems') or 'map'}", file=sys.stderr
        )
    return not any(codes) and not refused


def _refused(row: dict[str, Any]) -> bool:
    """Whether the engine did not take a command, its configuration or its expert map."""
    return not (row.get("parses") and row.get("configures")) or row.get("maps") is False


def files_summary(found: list[dict[str, Any]]) -> list[str]:
    """A line for each deployment of TensorRT-LLM: what was read and what was found wrong."""
    lines = [
        "| deployment | commands | engine files | fields | expert maps | rules broken |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        cells = [row["folder"], row["processes"], row["files"], row["fields"], row["maps"] or "-"]
        lines.append(f"| {' | '.join(map(str, cells))} | {len(row['problems'])} |")
    return lines


def rows(path: Path) -> list[dict[str, Any]]:
    """Lines of ``reads.jsonl``; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def summary(found: list[dict[str, Any]]) -> list[str]:
    """A line for each deployment: kinds of commands, and how many of them were read."""
    lines = [
        "| deployment | processes | kinds of commands | parse | configure | expert maps load |",
        "|---|---|---|---|---|---|",
    ]
    by_folder: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in found:
        by_folder[row["folder"]].append(row)
    for name, own in by_folder.items():
        maps = [row["maps"] for row in own if row.get("maps") is not None]
        cells = [
            sum(row["processes"] for row in own), len(own), sum(row["parses"] for row in own),
            sum(row["configures"] for row in own), f"{sum(maps)} of {len(maps)}" if maps else "-",
        ]  # fmt: skip
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return lines
