"""Whole units: how they are named, what their power limit leaves off, and copies of a layout on several of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import KvShare, Layout, Stage
from costmodel.plan.question import PlanUnits
from costmodel.question.instance import Instance, resolve_instance
from topology import TierKind, load_cluster
from topology.chip import Chip
from topology.cluster import Cluster
from topology.errors import InstanceError, Problem


@dataclass(frozen=True)
class UnitLayout:
    """A layout of ``group`` units of one kind, and what it carries.

    ``steady_requests_per_s``: by the evaluation; ``requests_per_s``: what counts, less where percentiles are targets.
    ``start_s``: reading the weights; ``drain_s``: finishing the longest request. ``left_requests_per_s``: what counts after the loss of any
    one unit, of whose different losses ``kept`` has the replicas that each leaves (none: the group is lost with it).
    """

    instance: Instance
    layout: Layout
    group: int
    steady_requests_per_s: float
    requests_per_s: float
    start_s: float
    drain_s: float
    left_requests_per_s: float = 0.0
    kept: tuple[tuple[int, ...], ...] = ()

    @property
    def units(self) -> float:
        """Units that the group has: of one that others share, the part that its chips are."""
        usable, taken = len(self.instance.cluster.usable), len(self.instance.scenario.taken)
        return self.group * usable / (usable + taken)

    def after_loss(self, most: int) -> tuple[float, ...]:
        """Requests/s of none to ``most`` groups, one of which has lost a unit; empty where it is lost whole."""
        if not self.kept:
            return ()
        whole = self.requests_per_s
        return (0.0, *(n * whole + self.left_requests_per_s for n in range(most)))


def less(layout: Layout, kept: Sequence[int], of: int | None = None) -> Layout:
    """A layout whose first group, of so many replicas (all of them unless told), has only those that are kept."""
    rest = () if of is None else layout.replicas[of:]
    return layout.model_copy(update={"replicas": (*(layout.replicas[at] for at in kept), *rest)})


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
    small, large = one.instance.cluster, load_cluster(cluster)
    turns = [turn * len(small.chips) for turn in range(number)]
    taken = (
        _chip(own, ahead, small, large) for ahead in turns for own in one.instance.scenario.taken
    )
    changed = {"cluster": cluster, "failed": failed, "taken": tuple(taken)}
    instance = resolve_instance(one.instance.scenario.model_copy(update=changed))
    replicas = (own for ahead in turns for own in moved(one.layout, ahead, small, large).replicas)
    return instance, one.layout.model_copy(update={"replicas": tuple(replicas)})


def moved(layout: Layout, ahead: int, small: Cluster, large: Cluster) -> Layout:
    """A layout of one cluster on the chips of another, each so many places farther on."""
    replicas = (
        replica.model_copy(
            update={
                "stages": tuple(_moved(stage, ahead, small, large) for stage in replica.stages),
                "kv": tuple(_moved_kv(own, ahead, small, large) for own in replica.kv),
            }
        )
        for replica in layout.replicas
    )
    return layout.model_copy(update={"replicas": tuple(replicas)})


def _moved(stage: Stage, ahead: int, small: Cluster, large: Cluster) -> Stage:
    chips = tuple(_chip(chip, ahead, small, large) for chip in stage.chips)
    return stage.model_copy(update={"chips": chips})


def _moved_kv(share: KvShare, ahead: int, small: Cluster, large: Cluster) -> KvShare:
    return share.model_copy(update={"chip": _chip(share.chip, ahead, small, large)})


def _chip(chip: str, ahead: int, small: Cluster, large: Cluster) -> str:
    """The chip so many places after that of the same place."""
    return large.chips[ahead + small.chips.index(small.chip(chip))].id


@dataclass(frozen=True)
class Start:
    """Where weights are read from, and seconds that a start takes beside it.

    ``tier``: ``None`` is flash, or the host's memory where chips have no flash.
    """

    tier: TierKind | None
    extra_s: float

    def bytes_per_s(self, chip: Chip) -> float | None:
        """At what rate a chip reads weights; ``None`` where it has no such source, or none that is known."""
        tier = chip.tier(self.tier or "flash")
        if tier is not None:
            return tier.read_bytes_per_s
        return chip.host_bytes_per_s if self.tier in (None, "host") else None

    def check(self, units: Iterable[PlanUnits]) -> None:
        """Raise ``InstanceError`` with every kind of chip that weights cannot be read to."""
        chips = {
            placed.chip.name: placed.chip
            for name in dict.fromkeys(one.cluster for one in units)
            for placed in load_cluster(name).chips
        }
        problems = [
            Problem("load_from", _no_source(chip, self.tier))
            for chip in chips.values()
            if self.bytes_per_s(chip) is None
        ]
        if problems:
            raise InstanceError(problems)


def _no_source(chip: Chip, tier: TierKind | None) -> str:
    """What a chip lacks, and what it has instead."""
    known = [kind for kind in get_args(TierKind) if Start(kind, 0.0).bytes_per_s(chip) is not None]
    lacks = (
        "no known rate from its host's memory" if tier == "host" else f"no {tier or 'flash'} tier"
    )
    if known:
        return f"{chip.name} has {lacks}: say {' or '.join(known)}"
    return f"{chip.name} has no tier, nor is its host_bytes_per_s known: a cluster file with a chip of its own may say it"


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
                rate = start.bytes_per_s(instance.cluster.chip(chip).chip)
                assert rate is not None
                longest = max(longest, held / rate)
    return longest + start.extra_s
