"""``--engine any`` beside each engine alone: cost and time of each question, in one process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.engines.deployments import Deployment, deployments
from costmodel.question.engine import ANY
from costmodel.question.engine_files import engine_names
from rackfit.api import solve
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime


def asked(one: Deployment, engine: str, folder: Path) -> dict[str, Any]:
    """Cost, bound and seconds (of the processor, and waited) of one engine; a reason where there is no answer."""
    cpu, wall = time.process_time(), time.perf_counter()
    found: dict[str, Any] = {"cost": None, "bound": None, "reason": ""}
    try:
        result = solve(one.instance(folder, engine), workers=1)
        found["cost"] = result.evaluation.usd_per_m_output_tokens
        found["bound"] = result.certificate.bound_usd_per_m_output_tokens
        found["chosen"] = result.instance.scenario.engine
    except (InstanceError, NoFeasibleLayout, NoLayoutInTime) as error:
        found["reason"] = str(error)
    return {**found, "cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}


def compare(folder: Path, names: Iterable[str]) -> None:
    """Append a line for each question to ``any.jsonl``; questions that are there are not asked again."""
    path = folder / "any.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    done = {row["name"] for row in rows(path)} if path.is_file() else set()
    seen: set[tuple[object, ...]] = set()
    wanted = set(names)
    for one in deployments():
        if one.question in seen or one.name in done or (wanted and one.name not in wanted):
            seen.add(one.question)
            continue
        seen.add(one.question)
        row = {engine: asked(one, engine, folder) for engine in (*engine_names(), ANY)}
        with path.open("a") as file:
            file.write(json.dumps({"name": one.name, **row}) + "\n")


def rows(path: Path) -> list[dict[str, Any]]:
    """Lines of a file that :func:`compare` wrote."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def choices(found: list[dict[str, Any]]) -> list[str]:
    """A table: cost of each engine, of the choice, and the seconds of both."""
    engines = engine_names()
    lines = [
        f"| model | cluster | {' | '.join(engines)} | any | chosen | seconds alone, together | seconds of any |",
        "|---|---|" + "---|" * (len(engines) + 4),
    ]
    questions = {one.name: one for one in deployments()}
    dearer = slower = 0
    for row in found:
        one, chosen = questions[row["name"]], row[ANY]
        alone = [row[engine] for engine in engines]
        costs = [each["cost"] for each in alone if each["cost"] is not None]
        seconds = sum(each["cpu_s"] for each in alone)
        dearer += bool(costs) and (
            chosen["cost"] is None or chosen["cost"] > min(costs) * (1 + 1e-9)
        )
        slower += chosen["cpu_s"] > seconds
        cells = [_usd(each["cost"]) for each in (*alone, chosen)]
        lines.append(
            f"| {one.model} | {one.cluster} | {' | '.join(cells)} | {chosen.get('chosen', '-')} | {seconds:.0f} | "
            f"{chosen['cpu_s']:.0f} |"
        )
    lines += [
        "",
        f"{len(found)} questions (some of the twenty differ in the engine alone): dearer than the cheapest engine in "
        f"{dearer}, longer than the engines one after the other in {slower} (seconds of the processor).",
    ]
    return lines


def _usd(cost: float | None) -> str:
    return "-" if cost is None else f"{cost:.3f}"
