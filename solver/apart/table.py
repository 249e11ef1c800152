"""Every shape of two groups on a cluster, as rows beside those of one group.

Both groups stand in one pool, or each in pools of its own: in some chips of one pool, or in all chips of several pools
of one class. A row of the shape table says which chips a shape takes; :class:`ApartTable` says what they do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.question.instance import Instance
from solver.shapes.pools import PoolClass
from solver.shapes.shapes import (
    COLUMNS,
    ROLES,
    ShapeTable,
    most_domains,
    slot_counts,
    tensor_widths,
)
from solver.shapes.spans import Parts
from topology.collectives.between import wired_alike

Ints = NDArray[np.int64]

#: microbatches in flight that are tried
MICROBATCHES = (1, 2, 3, 4)
#: sizes of a group in a pool of its own that are tried
_SIZES = 18


@dataclass(frozen=True)
class ApartTable:
    """Shapes of two groups as columns (arrays of one length): widths of attention, chips of experts, slots.

    ``footing``: which of ``footings`` a shape stands on.
    """

    tp: Ints
    ranks: Ints
    experts: Ints
    microbatches: Ints
    slots: Ints
    footing: Ints
    footings: tuple[Footing, ...]

    def __len__(self) -> int:
        return len(self.tp)

    def take(self, rows: Ints) -> ApartTable:
        """Some of the shapes."""
        return ApartTable(
            **{name: getattr(self, name)[rows] for name in _COLUMNS}, footings=self.footings
        )

    def chips(self, row: int) -> int:
        """Chips of attention."""
        return int(self.tp[row] * self.ranks[row])


_COLUMNS = ("tp", "ranks", "experts", "microbatches", "slots", "footing")


@dataclass(frozen=True)
class Footing:
    """Where both groups stand: chips in each of some pools of a class. In one pool where ``together``.

    ``attention`` and ``experts``: class, pools, chips in each.
    """

    attention: tuple[int, int, int]
    experts: tuple[int, int, int]
    together: bool

    @property
    def parts(self) -> Parts:
        """Chips by pool: those of attention first."""
        if self.together:
            return ((self.attention[0], self.attention[2] + self.experts[2]),)
        return tuple(
            (index, chips) for index, pools, chips in (self.attention, self.experts) for _ in range(pools)
        )  # fmt: skip

    @property
    def sizes(self) -> tuple[int, int]:
        """Chips of attention and of experts."""
        return self.attention[1] * self.attention[2], self.experts[1] * self.experts[2]


def footings(instance: Instance, classes: Sequence[PoolClass]) -> list[Footing]:
    """Every way for two groups to stand on chips as they are sold."""
    return [*_together(instance, classes), *_beside(instance, classes)]


def _together(instance: Instance, classes: Sequence[PoolClass]) -> Iterator[Footing]:
    domains = instance.cluster.domains
    for one in classes:
        home = domains[one.domain]
        if not wired_alike(instance.cluster, one.domain) or not home.interchangeable_chips:
            continue
        for chips in range(2, one.size + 1):
            if not home.granularity.allows(chips):
                continue
            for attention in range(1, chips):
                yield Footing(
                    (one.index, 1, attention), (one.index, 1, chips - attention), together=True
                )


def step(pool_class: PoolClass) -> int:
    """Chips between the sizes of a group that has a pool of its own: every size in small pools, each fourth of 72."""
    return max(1, pool_class.size // _SIZES)


def _beside(instance: Instance, classes: Sequence[PoolClass]) -> Iterator[Footing]:
    domains = instance.cluster.domains
    if instance.cluster.network is None:
        return
    most = most_domains(instance, classes)
    ways: list[list[tuple[int, int, int]]] = []
    for one in classes:
        home = domains[one.domain]
        if (
            one.cut_off
            or not one.few
            or not home.interchangeable_chips
            or not home.granularity.spans
        ):
            continue
        some = [
            (one.index, 1, chips)
            for chips in range(step(one), one.size + 1, step(one))
            if home.granularity.allows(chips)
        ]
        whole = [(one.index, pools, one.size) for pools in range(2, len(one.pools) + 1)]
        ways.append(some + (whole if home.granularity.allows(one.size) else []))
    flat = [way for own in ways for way in own]
    homes = {one.index: {pool.domain for pool in one.pools} for one in classes}
    for attention in flat:
        for experts in flat:
            same = attention[0] == experts[0]
            if not same and homes[attention[0]] & homes[experts[0]]:
                continue  # chips of two types in one domain
            pools = attention[1] + experts[1]
            if pools <= most and not (same and pools > len(classes[attention[0]].pools)):
                yield Footing(attention, experts, together=False)


def with_apart(
    instance: Instance, classes: tuple[PoolClass, ...], shapes: ShapeTable
) -> tuple[ShapeTable, ApartTable]:
    """The shapes with those of two groups after them, and what these are."""
    if instance.scenario.apart == "only":
        shapes = shapes.take(shapes.role == ROLES.index("prefill"))
    tensor, stands = tensor_widths(instance), footings(instance, classes)
    slots_of: dict[int, list[int]] = {}
    rows: list[tuple[int, ...]] = []
    own: list[tuple[int, ...]] = []
    spans: list[Parts] = list(shapes.spans)
    held: dict[int, int] = {}
    for number, stand in enumerate(stands):
        chips, experts = stand.sizes
        if experts not in slots_of:
            slots_of[experts] = slot_counts(instance, experts)
        parts, span = stand.parts, -1
        if not stand.together:
            span = len(spans)
            spans.append(parts)
            held[span] = stand.attention[1]
        home = stand.attention[0]
        widths = [tp for tp in tensor if stand.attention[2] % tp == 0]
        most = max(count for _, count in parts)
        for tp in widths:
            ranks = chips // tp
            for slots in slots_of[experts]:
                for batches in MICROBATCHES:
                    own.append((tp, ranks, experts, batches, slots, number))
                    named = {
                        "role": ROLES.index("decode"), "pool_class": home, "tp": tp,
                        "attention_dp": ranks, "pp": 1, "slices": len(parts), "slice_chips": most,
                        "stage_pools": len(parts), "slots": slots, "span": span,
                    }  # fmt: skip
                    rows.append(tuple(named[name] for name in COLUMNS))
    found = np.array(rows, dtype=np.int64).reshape(-1, len(COLUMNS)).T
    joined = {
        name: np.concatenate([getattr(shapes, name), column])
        for name, column in zip(COLUMNS, found, strict=True)
    }
    columns = np.array(own, dtype=np.int64).reshape(-1, len(_COLUMNS)).T
    return ShapeTable(**joined, spans=tuple(spans), kv_parts=held), ApartTable(
        **dict(zip(_COLUMNS, columns, strict=True)), footings=tuple(stands)
    )
