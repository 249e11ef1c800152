"""A solved instance as one JSON document, and back."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout, Shape
from costmodel.question.instance import Instance, instance_from_description
from costmodel.question.uncertainty import Comparison, compare_costs
from costmodel.replica.fleet import uplink_bytes_per_s
from costmodel.replica.replica import MEMORY_KINDS
from rackfit.documents.distance import measured_distance
from rackfit.documents.layout_file import read_layout_data
from rackfit.documents.notebook import answer_html
from rackfit.documents.output import write_whole
from solver.answer import Alone, Chosen, ForTraffic, SearchResult
from solver.certificate import Certificate
from topology.catalogue import checked
from topology.errors import InstanceError, Problem
from topology.names import Line

SCHEMA_VERSION = "1.0"


@dataclass(frozen=True)
class Result:
    """The answer of :func:`rackfit.solve`."""

    instance: Instance
    search: SearchResult
    seed: int
    workers: int
    #: least cost found within what was measured, ``None`` where nothing there fits or there was no time
    within_measured_usd_per_m_output_tokens: float | None = None

    @property
    def layout(self) -> Layout:
        """Every replica with its stages and placements."""
        return self.search.layout

    @property
    def evaluation(self) -> Evaluation:
        """What the cost model says of the layout, recomputed from scratch."""
        return self.search.evaluation

    @property
    def certificate(self) -> Certificate:
        """Proven bound, gap, and what the proof covers."""
        return self.search.certificate

    @property
    def status(self) -> str:
        """``optimal`` (the gap asked for is proven) or ``feasible``."""
        return self.search.status

    @property
    def comparison(self) -> Comparison | None:
        """The runner-up's cost beside the answer's; ``None`` where there is no runner-up."""
        other = self.search.runner_up
        costs = [
            one.evaluation.usd_per_m_output_tokens if one is not None else None
            for one in (self.search, other)
        ]
        if costs[0] is None or costs[1] is None:
            return None
        return compare_costs(self.instance.profile, costs[0], costs[1])

    def as_dict(self) -> dict[str, Any]:
        """The published document as plain data."""
        found = self.search
        return for_traffic(found.traffic) | {
            "schema_version": SCHEMA_VERSION,
            "status": found.status,
            "instance": self.instance.describe(),
            "certificate": {
                "bound_usd_per_m_output_tokens": found.certificate.bound_usd_per_m_output_tokens,
                "gap": found.certificate.gap,
                "covers": list(found.certificate.covers),
            },
            "evaluation": found.evaluation.as_dict(),
            "layout": layout_dict(found.layout),
            "runner_up": self._runner_up(),
            "engines": [_alone(one) for one in found.engines],
            "choices": [_chosen(one) for one in found.choices],
            "measured_distance": measured_distance(self.instance, found.layout),
            "within_measured_usd_per_m_output_tokens": self.within_measured_usd_per_m_output_tokens,
            "worlds": None if found.worlds is None else found.worlds.as_dict(),
            "memory": memory_by_chip(self.instance, found.layout, found.evaluation),
            "links": link_loads(self.instance, found.layout, found.evaluation),
            "skew": {"relative_cost": found.skew_cost, "spare_slots": spare_slots(found.layout)},
            "solve": {
                "wall_s": found.wall_s,
                "first_layout_s": found.first_layout_s,
                "proof_s": found.proof_s,
                "shapes": found.shapes,
                "seed": self.seed,
                "workers": self.workers,
                "versions": versions(),
                "trajectory": [
                    {
                        "elapsed_s": p.elapsed_s,
                        "incumbent": p.incumbent,
                        "bound": p.bound,
                        "gap": p.gap,
                    }
                    for p in found.trajectory
                ],
            },
        }

    def _runner_up(self) -> dict[str, Any] | None:
        other, compared = self.search.runner_up, self.comparison
        if other is None or compared is None:
            return None
        figures = other.evaluation
        return {
            "without": asdict(other.without),
            "usd_per_m_output_tokens": figures.usd_per_m_output_tokens,
            "least_usd_per_m_output_tokens": other.least_usd_per_m_output_tokens,
            "excess": compared.excess,
            "noise": compared.noise,
            "confidence": compared.confidence,
            "within_noise": compared.within_noise,
            "turned": compared.turned,
            "output_tokens_per_s": figures.output_tokens_per_s,
            "ttft_s": figures.ttft_s,
            "tpot_s": figures.tpot_s,
            "replicas": [
                {"count": count, "role": role, "shape": shape.model_dump()}
                for (role, shape), count in replica_counts(other.layout).items()
            ],
        }

    def _repr_html_(self) -> str:
        """What a notebook shows of the result."""
        return answer_html(
            self.instance,
            self.layout,
            self.evaluation,
            status=self.status,
            gap=self.certificate.gap,
        )

    def write(self, path: Path) -> None:
        """Write the document to ``path``, whole or not at all."""
        write_whole(self.text(), path)

    def text(self) -> str:
        """The document as JSON text."""
        return json.dumps(self.as_dict(), indent=1, allow_nan=False) + "\n"


def for_traffic(found: ForTraffic | None) -> dict[str, Any]:
    """``traffic`` and ``replay`` of a document: what replays said; empty where the question was no traffic."""
    if found is None:
        return {}
    parts = {"prefixes": found.prefixes, "put_off": found.put_off}
    hidden = ("met", "targets", *parts, *(("draws",) if found.draws is None else ()))
    figures = {name: value for name, value in vars(found).items() if name not in hidden}
    figures |= {name: asdict(part) for name, part in parts.items() if part is not None}
    return {"traffic": figures | asdict(found.targets), "replay": found.met.as_dict()}


def _alone(one: Alone) -> dict[str, Any]:
    """What one engine alone costs, as data; a bound of nothing feasible is ``null``."""
    bound = one.bound_usd_per_m_output_tokens
    return asdict(one) | {"bound_usd_per_m_output_tokens": bound if isfinite(bound) else None}


def _chosen(one: Chosen) -> dict[str, Any]:
    """What one combination of choices costs, as data; a bound of nothing feasible is ``null``."""
    bound = one.bound_usd_per_m_output_tokens
    values = {name: list(v) if isinstance(v, tuple) else v for name, v in one.values.items()}
    return {
        "values": values,
        "usd_per_m_output_tokens": one.usd_per_m_output_tokens,
        "bound_usd_per_m_output_tokens": bound if isfinite(bound) else None,
        "reason": one.reason,
    }


def replica_counts(layout: Layout) -> dict[tuple[str, Shape], int]:
    """How many replicas of each role and shape, in the layout's order."""
    found: dict[tuple[str, Shape], int] = {}
    for replica in layout.replicas:
        key = (replica.role, replica.shape)
        found[key] = found.get(key, 0) + 1
    return found


def layout_dict(layout: Layout) -> dict[str, Any]:
    """A layout as plain data (tuples become lists, layer numbers become strings)."""
    return layout.model_dump(mode="json")


def memory_by_chip(
    instance: Instance, layout: Layout, evaluation: Evaluation
) -> dict[str, dict[str, float]]:
    """Bytes of each used chip's HBM by kind, and its capacity."""
    found: dict[str, dict[str, float]] = {}
    for replica, price in zip(layout.replicas, evaluation.priced.replicas, strict=True):
        for stage, stage_price in zip(replica.groups, price.stages, strict=True):
            for place, chip in enumerate(stage.chips):
                found[chip] = {
                    kind: float(stage_price.memory[kind][place]) for kind in MEMORY_KINDS
                } | {"capacity": instance.cluster.chip(chip).chip.hbm_bytes}
    return found


def link_loads(instance: Instance, layout: Layout, evaluation: Evaluation) -> dict[str, Any]:
    """Load of each domain's uplinks, and the busiest link of the widest replica's exchange."""
    cluster = instance.cluster
    uplinks = {}
    for domain in cluster.domains:
        capacity = uplink_bytes_per_s(cluster, domain.index)
        load = evaluation.priced.egress_bytes_per_s(domain.index)
        uplinks[domain.name] = {
            "bytes_per_s": load,
            "capacity_bytes_per_s": capacity,
            "utilisation": load / capacity if capacity else 0.0,
        }
    widest = max((stage.chips for replica in layout.replicas for stage in replica.groups), key=len)
    busiest = "none"
    moe = instance.operations.moe
    if len(widest) > 1:
        kind = "dispatch" if moe else "all-reduce"
        rate = cluster.rate(kind, widest, top_k=round(moe.top_k) if moe else None)
        busiest = rate.busiest_link
    return {"uplinks": uplinks, "busiest_link": busiest}


def spare_slots(layout: Layout) -> dict[str, int | dict[str, int]]:
    """Expert slots beyond one per expert, by expert map; layer by layer where layers differ."""
    spare: dict[str, int | dict[str, int]] = {}
    for name, layers in layout.expert_maps.items():
        counts = {str(layer): len(row) - len(set(row)) for layer, row in layers.items()}
        alike = len(set(counts.values())) <= 1
        spare[name] = next(iter(counts.values()), 0) if alike else counts
    return spare


class LayoutDocument(BaseModel):
    """The parts of a result document that :func:`read_result` needs; the rest is ignored."""

    schema_version: Line
    instance: dict[str, Any]
    layout: Layout


def read_result(path: Path) -> tuple[Instance, Layout, dict[str, Any]]:
    """Instance and layout of a written document, and the document itself.

    Raises ``InstanceError`` for a file that is not one, also for another major schema version.
    """
    data = read_layout_data(path)
    with checked(path.name):
        document = LayoutDocument.model_validate(data)
    if document.schema_version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        message = (
            f"schema version {document.schema_version[:20]!r}, this Rackfit reads {SCHEMA_VERSION}"
        )
        raise InstanceError(Problem(f"{path.name}: schema_version", message))
    problems = [
        Problem(f"{path.name}: layout.replicas[{index}].stages[{number}]", wrong)
        for index, replica in enumerate(document.layout.replicas)
        for number, stage in enumerate(replica.groups)
        if (wrong := stage.uneven) is not None
    ]
    if problems:
        raise InstanceError(problems)
    return instance_from_description(document.instance, path.name), document.layout, data


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions that can change an answer."""
    found = {"python": platform.python_version()}
    for package in ("rackfit", "ortools", "numpy", "networkx", "pydantic"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
