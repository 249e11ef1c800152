"""Experts of small mixtures on chips of their own: every placement of a layer is tried."""

from __future__ import annotations

from itertools import combinations, product
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from costmodel.apart.kinds import half_kinds
from costmodel.apart.price import apart_schedule, sides_of
from costmodel.apart.times import apart_times
from costmodel.experts.moe_load import expert_shares
from costmodel.layout.layout import ExpertMap, Replica
from costmodel.passes.tokens import ExpertShares
from costmodel.question.instance import Instance
from topology.collectives.between import Between, between

#: placements of a layer up to which every one is tried
_MOST = 3000


class SmallLayers:
    """Every placement of a layer on some slots ``[placements, slots]``."""

    def __init__(self, instance: Instance, slots: tuple[int, ...], rows: NDArray[np.int64]):
        self.instance, self.slots, self.rows = instance, slots, rows
        self._there: Between | None = None

    def best(self, replica: Replica) -> ExpertMap:
        """The quickest placement of every MoE layer for this replica's batch."""
        instance, moe = self.instance, self.instance.operations.moe
        assert moe is not None
        assert replica.apart is not None
        plan = apart_schedule(instance, replica)
        assert plan.decode is not None
        tokens, experts = plan.decode, replica.apart.experts
        if self._there is None:
            self._there = between(instance.cluster, replica.kv_chips, experts.chips, moe.top_k)
        sides = sides_of(instance, replica, self._there)
        routed = float(tokens.rows) * replica.shape.attention_dp * float(tokens.fill)
        found: ExpertMap = {}
        for kind in half_kinds(instance.operations):
            if kind.experts is None:
                continue
            loads = instance.kind_loads(kind.experts)
            for layer, load in zip(kind.experts.layers, loads, strict=True):
                every = np.broadcast_to(load, (len(self.rows), len(load)))
                own = expert_shares(every, self.rows, self.slots, moe.top_k, routed)
                shares = ExpertShares(own.load[None], own.touched[None])
                timed = apart_times(sides, [kind], tokens, [shares]).kinds[0]
                tact = timed.tacts(sides.microbatches)[0]
                found[layer] = tuple(self.rows[int(np.argmin(tact))].tolist())
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
