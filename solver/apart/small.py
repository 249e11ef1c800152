"""Layers whose experts lie on chips of their own: how long they take, and of small ones every placement."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from costmodel.apart.kinds import HalfKind, half_kinds
from costmodel.apart.price import apart_schedule, sides_of
from costmodel.apart.times import apart_times
from costmodel.experts.moe_load import expert_shares
from costmodel.layout.layout import ExpertMap, Replica
from costmodel.passes.tokens import ExpertShares
from costmodel.question.instance import Instance
from topology.collectives.between import Between, between

Array = NDArray[np.float64]
#: placements of a layer up to which every one is tried
_MOST = 3000


class Tacts:
    """How long layers of a replica of two groups take at its batch, by where their experts lie.

    ``routed``: tokens of a microbatch over all ranks; ``there``: how the groups are joined.
    """

    def __init__(self, instance: Instance, replica: Replica, there: Between):
        self.instance = instance
        plan = apart_schedule(instance, replica)
        assert plan.decode is not None
        self.tokens = plan.decode
        self.sides = sides_of(instance, replica, there)
        self.routed = float(self.tokens.rows) * replica.shape.attention_dp * float(self.tokens.fill)

    def of(
        self, half: HalfKind, loads: Array, rows: NDArray[np.int64], slots: Sequence[int]
    ) -> Array:
        """Seconds ``[layers]`` of layers of one kind with ``loads [layers, experts]``, ``rows [layers, slots]``."""
        moe = self.instance.operations.moe
        assert moe is not None
        own = expert_shares(loads, rows, slots, moe.top_k, self.routed)
        shares = ExpertShares(own.load[None], own.touched[None])
        timed = apart_times(self.sides, [half], self.tokens, [shares]).kinds[0]
        return np.asarray(timed.tacts(self.sides.microbatches)[0])


def joined(instance: Instance, replica: Replica) -> Between:
    """How the two groups of a replica are joined."""
    assert instance.operations.moe is not None
    assert replica.apart is not None
    return between(
        instance.cluster, replica.kv_chips, replica.apart.experts.chips, instance.operations.moe.top_k
    )  # fmt: skip


class SmallLayers:
    """Every placement of a layer on some slots ``[placements, slots]``."""

    def __init__(self, instance: Instance, slots: tuple[int, ...], rows: NDArray[np.int64]):
        self.instance, self.slots, self.rows = instance, slots, rows
        self._there: Between | None = None

    def best(self, replica: Replica) -> ExpertMap:
        """The quickest placement of every MoE layer for this replica's batch."""
        if self._there is None:
            self._there = joined(self.instance, replica)
        tacts = Tacts(self.instance, replica, self._there)
        found: ExpertMap = {}
        for half in half_kinds(self.instance.operations):
            if half.experts is None:
                continue
            loads = self.instance.kind_loads(half.experts)
            for layer, load in zip(half.experts.layers, loads, strict=True):
                every = np.broadcast_to(load, (len(self.rows), len(load)))
                took_s = tacts.of(half, every, self.rows, self.slots)
                found[layer] = tuple(self.rows[int(np.argmin(took_s))].tolist())
        return found


def small_layers(instance: Instance, slots: tuple[int, ...]) -> SmallLayers | None:
    """Every placement of a layer, where there are few; ``None`` where they are too many to try."""
    moe = instance.operations.moe
    if moe is None or prod(comb(moe.num_experts, count) for count in slots) > _MOST:
        return None
    ways = [list(combinations(range(moe.num_experts), count)) for count in slots]
    rows = [
        tuple(expert for chip in chosen for expert in chip)
        for chosen in product(*ways)
        if len({expert for chip in chosen for expert in chip}) == moe.num_experts
    ]
    return SmallLayers(instance, slots, np.array(rows, dtype=np.int64)) if rows else None
