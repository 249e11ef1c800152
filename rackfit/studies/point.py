"""One point of a study: resolved, looked up in the cache, solved, and put into one table row."""

from __future__ import annotations

import hashlib
import inspect
import json
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import costmodel
import solver
import topology
from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance, resolve_instance
from costmodel.replica.replica import ReplicaPrice
from rackfit.documents.output import make_folder, write_whole
from rackfit.documents.result import versions
from rackfit.studies.base import Options, Row
from rackfit.studies.grid import Point
from rackfit.studies.registry import find_study
from solver.answer import SearchResult
from solver.clock import Clock
from solver.search import search
from topology.catalogue import is_file
from topology.errors import (
    InstanceError,
    NoFeasibleLayout,
    NoLayoutInTime,
    RackfitError,
    VerificationError,
)
from topology.reading import parse_json, read_text

#: a kept row larger than this is none
MAX_KEPT_BYTES = 2**20
#: what a failed point is called in the table
FAILURES: dict[type[RackfitError], str] = {
    NoFeasibleLayout: "infeasible",
    NoLayoutInTime: "time_limit",
    InstanceError: "bad_input",
    VerificationError: "internal",
}


def solve_point(point: Point, options: Options, cache: Path | None) -> tuple[Row, bool]:
    """The row of a point, and whether it came from the cache. A failure is a row with ``error``.

    Answers and proofs that nothing fits are kept in ``cache``, under a name made from everything
    they depend on; a point that ran out of time is asked again.
    """
    try:
        instance = resolve_instance(point.scenario)
    except Exception as error:  # one point must not take the others with it
        return {**point.axes, **_failed(error), **point.numbers}, False
    kept = cache / f"{_key(instance, point, options)}.json" if cache is not None else None
    if kept is not None and (row := _read(kept)) is not None:
        return {**point.axes, **row, **point.numbers}, True
    try:
        answer = find_study(point.study).answer if point.study else None
        found = (
            solve_row(instance, options) if answer is None else answer(instance, point.own, options)
        )
        row = described_row(instance) | {"status": "computed", "error": ""} | found
    except Exception as error:  # as above
        row = described_row(instance) | _failed(error)
    if kept is not None and row["status"] in ("optimal", "feasible", "infeasible", "computed"):
        with suppress(
            InstanceError, OSError
        ):  # a folder that cannot be written: the row is not kept
            make_folder(kept.parent)
            write_whole(_kept_text(row, kept.stem), kept)
    return {**point.axes, **row, **point.numbers}, False


def solve_row(instance: Instance, options: Options) -> Row:
    """What the solver finds: figures, bound, and the shape of the largest generating replica.

    Raises what :func:`solver.search.search` raises.
    """
    return found_row(instance, solve_instance(instance, options))


def solve_instance(instance: Instance, options: Options) -> SearchResult:
    """The search of one point."""
    clock = Clock(options.time_limit_s)
    return search(instance, clock=clock, gap=options.gap, seed=options.seed)


def lost_row(point: Point) -> Row:
    """The row of a point whose process died each time it was asked."""
    words = "the process that worked on it was killed or ran out of memory, twice"
    return {**point.axes, "status": "internal", "error": words, **point.numbers}


def _key(instance: Instance, point: Point, options: Options) -> str:
    made = [
        instance.digest,
        point.study,
        point.own,
        asdict(options),
        versions(),
        _code(point.study),
    ]
    text = json.dumps(made, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=64)
def _code(study: str) -> str:
    """Digest of the code that makes an answer, so that a changed model or study is asked again."""
    whole = hashlib.sha256()
    folders = [Path(package.__path__[0]) for package in (topology, costmodel, solver)]
    paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    paths += sorted(p for own in ("*.py", "systems/*.py") for p in Path(__file__).parent.glob(own))
    answer = find_study(study).answer if study else None
    if answer is not None:
        paths.append(Path(inspect.getfile(answer)))
    for path in paths:
        whole.update(path.read_bytes())
    return whole.hexdigest()


def _kept_text(row: Row, key: str) -> str:
    """A row with a sum over it and its name, so that one that was edited or moved is not believed."""
    text = json.dumps(row, allow_nan=False)
    return json.dumps({"row": row, "sum": _sum(text, key)}) + "\n"


def _sum(text: str, key: str) -> str:
    return hashlib.sha256(f"{key}\n{text}".encode()).hexdigest()


def _read(path: Path) -> Row | None:
    """The row kept at ``path``; ``None`` where there is none, or not as it was written."""
    if not is_file(path):
        return None
    try:
        kept = parse_json(read_text(path, MAX_KEPT_BYTES), str(path))
        row = kept["row"]
        right = kept["sum"] == _sum(json.dumps(row, allow_nan=False), path.stem)
    except (InstanceError, KeyError, TypeError, ValueError):
        return None
    return row if right and isinstance(row, dict) else None


def _failed(error: Exception) -> Row:
    status = next((text for kind, text in FAILURES.items() if isinstance(error, kind)), "internal")
    words = str(error) if isinstance(error, RackfitError) else f"{type(error).__name__}: {error}"
    return {"status": status, "error": words or type(error).__name__}


def described_row(instance: Instance) -> Row:
    """What was asked about: model, cluster, its size, and the digest of the instance."""
    cluster = instance.cluster
    return {
        "model_name": instance.model.name,
        "cluster_name": cluster.name,
        "domain_size": max(len(domain.chips) for domain in cluster.domains),
        "num_domains": len(cluster.domains),
        "chips_healthy": len(cluster.usable),
        "digest": instance.digest,
    }


def found_row(instance: Instance, found: SearchResult) -> Row:
    """A search's answer as columns."""
    row: Row = {"status": found.status} | evaluated_row(instance, found.layout, found.evaluation)
    row["bound_usd_per_m_output_tokens"] = found.certificate.bound_usd_per_m_output_tokens
    row["gap"] = found.certificate.gap
    return row


def evaluated_row(instance: Instance, layout: Layout, evaluation: Evaluation) -> Row:
    """What the evaluator says of a layout, as columns."""
    figures = evaluation.as_dict()
    keys = (
        "usd_per_m_output_tokens", "usd_per_m_tokens", "usd_per_hour", "output_tokens_per_s",
        "output_tokens_per_s_per_gpu", "requests_per_s", "ttft_s", "tpot_s", "chips_used",
        "chips_total", "joules_per_output_token", "bottleneck",
    )  # fmt: skip
    row: Row = {key: figures[key] for key in keys}
    row["assumed"] = "; ".join(evaluation.assumed)
    row["price_basis"] = (evaluation.provenance or {}).get("money", "")
    pairs = list(zip(layout.replicas, evaluation.priced.replicas, strict=True))
    row["prefill_chips"] = sum(len(r.chips) for r, _ in pairs if r.role == "prefill")
    generating = [pair for pair in pairs if pair[0].role != "prefill"]
    if not generating:
        return row
    return row | _main_replica(instance, *max(generating, key=lambda pair: len(pair[0].chips)))


def _main_replica(instance: Instance, replica: Replica, price: ReplicaPrice) -> Row:
    """The largest replica that generates tokens: its shape, and seconds of a pass by part."""
    shape = replica.shape
    parts: dict[str, float] = {}
    for stage in price.stages:
        for part, seconds in stage.parts.items():
            parts[part] = parts.get(part, 0.0) + float(seconds)
    widest = max(
        len({instance.cluster.chip(chip).domain for chip in stage.chips})
        for stage in replica.stages
    )
    row: dict[str, Any] = {
        "role": replica.role,
        "replica_chips": len(replica.chips),
        "domains_per_stage": widest,
        **shape.model_dump(),
        "sequences_per_chip": shape.batch / len(replica.chips),
    }
    if instance.operations.moe is not None:
        cut = f"cut over {shape.chips_per_stage}"
        row["experts_on"] = cut if replica.cuts_experts else f"EP {shape.ep}"
    return row | {f"time_{part}_s": seconds for part, seconds in parts.items()}
