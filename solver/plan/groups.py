"""Whole units: how they are named, what their power limit leaves off, and copies of a layout on several of them."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import KvShare, Layout, Stage
from costmodel.plan.question import PlanUnits
from costmodel.question.instance import Instance, resolve_instance
from topology import TierKind, load_cluster
from topology.cluster import Cluster
from topology.errors import InstanceError, Problem


@dataclass(frozen=True)
class UnitLayout:
    """A layout of ``group`` units of one kind, and what it carries.

    ``steady_requests_per_s``: by the evaluation; ``requests_per_s``: what counts, less where percentiles are targets.
    ``start_s``: reading the weights; ``drain_s``: finishing the longest request.
    """

    instance: Instance
    layout: Layout
    group: int
    steady_requests_per_s: float
    requests_per_s: float
    start_s: float
    drain_s: float


def chips_off(units: PlanUnits, overhead: float) -> tuple[int, float]:
    """Chips of a unit that its power limit leaves off, and the power of the rest in watts.

    Raises ``InstanceError`` where the limit leaves none.
    """
    chips = load_cluster(units.cluster).chips
    watts = [placed.chip.power_w * overhead for placed in chips]
    left = len(watts)
    while units.power_cap is not None and left and sum(watts[:left]) > units.power_cap:
        left -= 1
    if not left:
        message = (
            f"power_cap: a chip draws {watts[0]:,.0f} W, the limit is {units.power_cap:,.0f} W"
        )
        raise InstanceError(Problem(f"units: {units.cluster}", message))
    return len(watts) - left, sum(watts[:left])


def on_units(kind: str, number: int, off: int) -> tuple[str, tuple[str, ...]]:
    """The cluster of so many units, and the names of the chips that are off."""
    cluster = kind if number == 1 else f"{kind}@{number}"
    if not off:
        return cluster, ()
    size = len(load_cluster(kind).chips)
    chips = load_cluster(cluster).chips
    names = (chips[turn * size + i].id for turn in range(number) for i in range(size - off, size))
    return cluster, tuple(names)


def copies(one: UnitLayout, number: int, kind: str, off: int) -> tuple[Instance, Layout]:
    """The question and the layout of so many groups, each on units of its own."""
    if number == 1:
        return one.instance, one.layout
    cluster, failed = on_units(kind, number * one.group, off)
    scenario = one.instance.scenario.model_copy(update={"cluster": cluster, "failed": failed})
    instance = resolve_instance(scenario)
    small = one.instance.cluster
    replicas = [
        replica.model_copy(
            update={
                "stages": tuple(_moved(stage, turn, small, instance.cluster) for stage in replica.stages),
                "kv": tuple(_moved_kv(own, turn, small, instance.cluster) for own in replica.kv),
            }
        )
        for turn in range(number)
        for replica in one.layout.replicas
    ]  # fmt: skip
    return instance, one.layout.model_copy(update={"replicas": tuple(replicas)})


def _moved(stage: Stage, turn: int, small: Cluster, large: Cluster) -> Stage:
    chips = tuple(_chip(chip, turn, small, large) for chip in stage.chips)
    return stage.model_copy(update={"chips": chips})


def _moved_kv(share: KvShare, turn: int, small: Cluster, large: Cluster) -> KvShare:
    return share.model_copy(update={"chip": _chip(share.chip, turn, small, large)})


def _chip(chip: str, turn: int, small: Cluster, large: Cluster) -> str:
    """The chip of the same place in the group of a turn."""
    place = small.chips.index(small.chip(chip))
    return large.chips[turn * len(small.chips) + place].id


@dataclass(frozen=True)
class Start:
    """Where weights are read from, and seconds that a start takes beside it."""

    tier: TierKind
    extra_s: float


def start_s(instance: Instance, evaluation: Evaluation, layout: Layout, start: Start) -> float:
    """Seconds until the chip with most weights per speed of its tier has read them, and what a start takes beside it."""
    longest = 0.0
    for replica, price in zip(layout.replicas, evaluation.priced.replicas, strict=True):
        for stage, own in zip(replica.stages, price.stages, strict=True):
            weights = sum(
                (held for name, held in own.memory.items() if name in ("weights", "experts")),
                start=0.0 * own.used_bytes,
            )
            for chip, held in zip(stage.chips, weights.tolist(), strict=True):
                tier = instance.cluster.chip(chip).chip.tier(start.tier)
                if tier is None:
                    message = f"{instance.cluster.chip(chip).chip.name} has no {start.tier} tier"
                    raise InstanceError(Problem("load_from", message))
                longest = max(longest, held / tier.read_bytes_per_s)
    return longest + start.extra_s
