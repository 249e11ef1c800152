"""Every shape a replica may have on a class of pools: all widths, not only powers of two.

A shape stands on ``slices``: the same number of chips in each of so many pools of one class. Three
ways to stand: one stage in one pool or spread over several (its experts then span domains), several
stages side by side in one pool, or each stage in a pool of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.instance import Instance
from costmodel.layout import Role
from costmodel.models.spec import Attention
from solver.pools import PoolClass

Ints = NDArray[np.int64]

ROLES: tuple[Role, ...] = ("prefill", "decode", "mixed")


@dataclass(frozen=True)
class ShapeTable:
    """Shapes as columns, one row each (arrays of one length).

    ``tp attention_dp pp``: widths. ``pool_class``; ``slices`` pools are used, ``slice_chips`` in
    each. ``stage_pools``: pools that one stage spans. ``slots``: expert slots of a MoE layer over
    the stage (0 for a dense model); they lie as evenly as possible.
    """

    role: Ints
    pool_class: Ints
    tp: Ints
    attention_dp: Ints
    pp: Ints
    slices: Ints
    slice_chips: Ints
    stage_pools: Ints
    slots: Ints

    def __len__(self) -> int:
        return len(self.role)

    @property
    def stage_chips(self) -> Ints:
        """Chips of one stage."""
        return self.tp * self.attention_dp

    @property
    def chips(self) -> Ints:
        """Chips of the replica."""
        return self.stage_chips * self.pp

    def take(self, index: NDArray[np.bool_] | NDArray[np.int64]) -> ShapeTable:
        """The rows picked by ``index``."""
        return ShapeTable(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    def row(self, index: int) -> dict[str, int]:
        """One shape as plain numbers."""
        return {name: int(getattr(self, name)[index]) for name in self.__dataclass_fields__}


def enumerate_shapes(instance: Instance, classes: tuple[PoolClass, ...]) -> ShapeTable:
    """All shapes of all roles on all classes."""
    widths = tensor_widths(instance)
    rows: list[tuple[int, ...]] = []
    for pool_class in classes:
        for pp, slices, slice_chips, stage_pools in _standings(instance, pool_class):
            in_pool = slice_chips if pp == slices or pp == 1 else slice_chips // pp
            stage_chips = in_pool * stage_pools
            for tp in widths:
                if in_pool % tp:
                    continue
                ranks = stage_chips // tp
                if instance.operations.moe is None and ranks > 1:
                    continue  # ranks of a dense model share nothing: they are replicas
                for slots in slot_counts(instance, stage_chips):
                    for role in range(len(ROLES)):
                        if pp > 1 and ROLES[role] == "mixed":
                            continue  # two kinds of pass want two cuts of the layers
                        rows.append(
                            (
                                role, pool_class.index, tp, ranks, pp, slices, slice_chips,
                                stage_pools, slots,
                            )
                        )  # fmt: skip
    columns = np.array(rows, dtype=np.int64).reshape(-1, 9).T
    return ShapeTable(*columns)


def tensor_widths(instance: Instance) -> list[int]:
    """Tensor-parallel widths: divisors of every layer's query heads."""
    heads = {
        part.query_heads
        for layer in instance.model.layers
        for part in layer.sublayers
        if isinstance(part, Attention)
    }
    most = min(heads, default=1)
    return [tp for tp in range(1, most + 1) if all(count % tp == 0 for count in heads)]


def slot_counts(instance: Instance, chips: int) -> list[int]:
    """Slots of a MoE layer over ``chips``: none spare, the next full rows, and 32 or 64 spare."""
    moe = instance.operations.moe
    if moe is None:
        return [0]
    experts = moe.num_experts
    least = -(-experts // chips)
    counts = {chips * (least + more) for more in range(3)}
    counts |= {chips * -(-(experts + spare) // chips) for spare in (32, 64)}
    if chips <= experts:
        counts.add(experts)
    # an expert may lie at most once on a chip, so more than experts x chips slots cannot be filled
    return sorted(count for count in counts if count <= min(experts * chips, 2 * experts + chips))


def _standings(instance: Instance, pool_class: PoolClass) -> list[tuple[int, int, int, int]]:
    """``(pp, slices, slice_chips, stage_pools)`` of every way to stand on a class."""
    limits = instance.limits
    num_layers = instance.operations.num_layers
    pools = len(pool_class.pools)
    stages = min(limits.max_pipeline_stages, num_layers)
    found = []
    for chips in range(1, pool_class.size + 1):
        found.append((1, 1, chips, 1))
        for span in range(2, min(pools, limits.max_domains_per_replica) + 1):
            if instance.operations.moe is not None:
                found.append((1, span, chips, span))
            if span <= stages:
                found.append((span, span, chips, 1))
        for pp in range(2, stages + 1):
            if chips * pp <= pool_class.size:
                found.append((pp, 1, chips * pp, 1))
    return found
