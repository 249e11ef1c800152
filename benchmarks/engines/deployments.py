"""The twenty questions of ``deployments.csv``, and their answers as files.

``before``: cost when engines' limits were not in the search; ``reason``: what they change, as a person read it.
A cluster is of the catalogue, or a chip and how many of it each host has (``h100: 4 4 4 2``).
"""

from __future__ import annotations

import csv
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.api import solve
from rackfit.documents.result import read_result
from rackfit.exporters.export import export_layout, write_files

ROWS = Path(__file__).with_name("deployments.csv")


@dataclass(frozen=True)
class Deployment:
    """One question; ``before`` in dollars per million output tokens."""

    name: str
    engine: str
    model: str
    cluster: str
    input: int
    output: int
    ttft: str
    tpot: str
    before: float
    reason: str

    @property
    def question(self) -> tuple[object, ...]:
        """What is asked beside the engine."""
        return self.model, self.cluster, self.input, self.output, self.ttft, self.tpot

    def instance(self, folder: Path, engine: str | None = None) -> Instance:
        """The question, for its own engine or another; a cluster of its own is written under ``folder``."""
        cluster = self.cluster
        if ":" in cluster:
            cluster = str(_written(cluster, folder))
        scenario = {
            "model": self.model,
            "cluster": cluster,
            "workload": {"input_tokens": self.input, "output_tokens": self.output},
            "slo": {"ttft": self.ttft, "tpot": self.tpot},
            "engine": engine or self.engine,
        }
        return resolve_instance(Scenario.model_validate(scenario))


def _written(text: str, folder: Path) -> Path:
    """A cluster of hosts with so many chips each, as a file."""
    chip, _, counts = text.partition(":")
    fabric = {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]}
    domains = [
        {
            "rack": f"host-{number}",
            "fabric": fabric,
            "chips": [{"chip": chip, "count": int(count)}],
        }
        for number, count in enumerate(counts.split())
    ]
    name = f"{chip}-{'-'.join(counts.split())}"
    path = folder / f"{name}.json"
    folder.mkdir(parents=True, exist_ok=True)
    data = {"name": name, "domains": domains, "scale_out": {"kind": "rail-optimised"}}
    path.write_text(json.dumps(data))
    return path


def deployments() -> list[Deployment]:
    """All rows."""
    with ROWS.open(newline="", encoding="utf-8") as file:
        return [
            Deployment(
                **{
                    **row,
                    "input": int(row["input"]),
                    "output": int(row["output"]),
                    "before": float(row["before"]),
                }
            )
            for row in csv.DictReader(file)
        ]


def answer(one: Deployment, folder: Path) -> dict[str, Any]:
    """Solve and export under ``folder``, unless done; the document, with the seconds that it took."""
    path = folder / f"{one.name}.json"
    if not path.is_file():
        started = time.perf_counter()
        result = solve(one.instance(folder), workers=1)
        seconds = time.perf_counter() - started
        exported = export_layout(result.instance, result.layout, one.engine)
        if not (folder / one.name).is_dir():
            write_files(exported.files, folder / one.name)
        (folder / f"{one.name}.seconds").write_text(f"{seconds:.1f}")
        result.write(path)
    document: dict[str, Any] = read_result(path)[2]
    return document
