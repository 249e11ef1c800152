r"""Least times and bytes of shapes of two groups at any batch: no placement of experts, no spread of sequences beats them.

Of ``S`` sequences on ``R`` ranks and ``k`` microbatches the fullest rank has ``p = ceil(S / (R k))`` at least in its fullest
microbatch, and all ranks together ``S / k`` at least in theirs. A layer's time is convex in the load and in the touched
experts of its busiest chip, so that its mean over layers is no less than its value at the mean of their bounds. With
``p`` the time per sequence falls in ``S``, and at ``S = p R k`` it falls in ``p``: the largest batch that holds, or the last one
below it that is full on every rank, serves most.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.apart.kinds import half_kinds
from costmodel.apart.price import expert_copies_bytes
from costmodel.apart.times import Exchange, Sides, apart_times
from costmodel.passes.communication import NEVER_S, GroupRates, stacked_rates_of_chips
from costmodel.passes.group import achieved_by
from costmodel.passes.tokens import ExpertShares, Tokens
from costmodel.question.instance import Instance
from costmodel.tolerance import RELATIVE
from solver.apart.table import ApartTable, Footing
from solver.bounds.experts.expert_bounds import ExpertBounds
from solver.bounds.priced import Array, Bounds
from solver.shapes.pools import PoolClass
from topology.collectives.between import between
from topology.errors import NoRoute

Ints = NDArray[np.int64]


class ApartBlock:
    """Shapes of two groups on one type of chip each, priced together at any batch.

    ``by_layer``: bounds on the busiest chip's load in each MoE layer, for one shape whose placement proved them.
    """

    def __init__(
        self,
        instance: Instance,
        classes: Sequence[PoolClass],
        experts: ExpertBounds,
        table: ApartTable,
    ):
        self.instance, self.classes, self.experts, self.table = instance, classes, experts, table
        self.by_layer: Array | None = None
        first = table.footings[int(table.footing[0])]
        self.chips = [classes[first.attention[0]].chip, classes[first.experts[0]].chip]
        self.efficiency = [instance.profile.for_chip(chip.name) for chip in self.chips]
        self.kinds = half_kinds(instance.operations)
        self.ranks = table.ranks.astype(float)
        self.batches = table.microbatches.astype(float)
        pairs, inverse = np.unique(
            np.stack([table.experts, table.slots], axis=1), axis=0, return_inverse=True
        )
        self.pairs, self.pair_of = pairs.tolist(), inverse.ravel()

    # -- what the shapes stand on -------------------------------------------------------------------------

    @cached_property
    def sides(self) -> Sides:
        """Both groups of every shape."""
        table, instance = self.table, self.instance
        used, inverse = np.unique(table.footing, return_inverse=True)
        rates = [self._exchange(table.footings[number]) for number in used.tolist()]
        exchange = Exchange(*np.array(rates).T).take(inverse.ravel())
        widths, which = np.unique(table.tp, return_inverse=True)
        pool = self.classes[table.footings[int(table.footing[0])].attention[0]].pools[0]
        reduce = GroupRates.side_by_side(
            [
                stacked_rates_of_chips(
                    instance.cluster, [pool.chips[:tp]], tp, 0.0, self.efficiency[0]
                )
                for tp in widths.tolist()
            ]
        ).take(which.ravel())
        attention, expert = (
            achieved_by(*pair) for pair in zip(self.chips, self.efficiency, strict=True)
        )
        return Sides(
            instance.operations, instance.profile.combination, attention, expert,
            table.tp.astype(float), self.ranks, table.experts.astype(float), self.batches, reduce,
            exchange,
        )  # fmt: skip

    def _exchange(self, stand: Footing) -> tuple[float, float, float, float]:
        moe = self.instance.operations.moe
        assert moe is not None
        groups = group_chips(stand, self.classes)
        cluster = self.instance.cluster
        if not stand.together:
            cluster = cluster.in_one_unit  # no group is joined less well than these are here
        try:
            there = between(cluster, *groups, moe.top_k)
        except NoRoute:
            return NEVER_S, 0.0, 0.0, 0.0
        return (
            there.latency_s, there.out_s_per_byte, there.through_s_per_byte, there.into_s_per_byte,
        )  # fmt: skip

    # -- times --------------------------------------------------------------------------------------------

    def period_s(self, total: Array) -> Array:
        """Seconds of a pass of every microbatch at least, with so many sequences."""
        fullest = np.ceil(total / (self.ranks * self.batches))
        in_pass = total / self.batches
        fill = in_pass / (fullest * self.ranks)
        tokens = Tokens(
            decode=fullest, context=self.instance.workload.decode_context, fill=np.asarray(fill)
        )
        shares = self._shares(in_pass)
        return apart_times(self.sides, self.kinds, tokens, shares).period_s

    def _shares(self, tokens: Array) -> list[ExpertShares | None]:
        """Bounds on load and touched experts of the busiest chip, kind by kind ``[shapes, entries, 1]``."""
        moe = [half.experts for half in self.kinds if half.experts is not None]
        single = len(moe) == 1
        found: list[ExpertShares | None] = []
        for half in self.kinds:
            if half.experts is None:
                found.append(None)
                continue
            rows = list(half.experts.moe_rows)
            if self.by_layer is not None:
                chips, slots = self.pairs[0]
                touched = self.experts.touched_by_layer(chips, slots, float(tokens[0]))[rows]
                found.append(
                    ExpertShares(self.by_layer[rows][None, :, None], touched[None, :, None])
                )
                continue
            load = np.array([self.experts.layer_loads(*pair)[rows].mean() for pair in self.pairs])
            # of several kinds with experts, the mean of all layers bounds none of them
            grids = [self.experts.touched_on_grid(*pair)[0 if single else 1] for pair in self.pairs]
            touched = self.experts.touched(np.array(grids)[self.pair_of], tokens)
            found.append(ExpertShares(load[self.pair_of][:, None, None], touched[:, None, None]))
        return found

    # -- bytes --------------------------------------------------------------------------------------------

    @cached_property
    def _held(self) -> tuple[Array, Array, Array, Array, Array]:
        """Of a chip of attention: fixed bytes, of a sequence, of a row and of a sampled row; of experts: slots."""
        instance, table = self.instance, self.table
        counts = instance.operations.layers_within(0, instance.operations.num_layers - 1)
        widths, which = np.unique(table.tp, return_inverse=True)
        rows = []
        for tp in widths.tolist():
            width = instance.width_bytes(tp)
            rows.append(
                (
                    width.weights(counts, tp, first=True, last=True) + self.efficiency[0].runtime_bytes,
                    width.cached(counts, instance.final_context, last=True),
                    width.active(1.0, 0.0), width.active(0.0, 1.0), width.slot(counts),
                )
            )  # fmt: skip
        fixed, cached, row, sampled, slot = np.array(rows)[which.ravel()].T
        most = np.ceil(table.slots / table.experts)
        return fixed, cached, row, sampled, slot * most + self.efficiency[1].runtime_bytes

    def short_bytes(self, total: Array) -> Array:
        """Bytes that the fuller of both groups lacks at least, with so many sequences (below 0: room)."""
        fixed, cached, row, sampled, slots = self._held
        fullest = np.ceil(total / (self.ranks * self.batches))
        alive = fullest * self.batches
        attention = fixed + cached * np.ceil(total / self.ranks) + row * alive + sampled * fullest
        copies = expert_copies_bytes(
            self.instance, alive * self.ranks, self.table.experts.astype(float)
        )
        usable = [self.instance.usable_hbm_bytes(chip) * (1 + RELATIVE) for chip in self.chips]
        return np.asarray(np.maximum(attention - usable[0], slots + copies - usable[1]))

    # -- bounds -------------------------------------------------------------------------------------------

    def bounds(self, most_per_rank: int | None = None) -> Bounds:
        """The largest batch that may hold, and what any batch serves at most."""
        count = len(self.table)
        one = np.ones(count)
        most = self.instance.limits.max_sequences_per_rank
        most = most if most_per_rank is None else min(most, most_per_rank)
        alone, short = self.period_s(one), self.short_bytes(one)
        low = np.where(self._holds(one, alone, short), 1.0, 0.0)
        high = np.where(low > 0, self.ranks * most, 0.0)
        while np.any(low < high):
            middle = np.ceil((low + high) / 2)
            tried = np.maximum(middle, 1.0)
            good = self._holds(tried, self.period_s(tried), self.short_bytes(tried))
            low = np.where(good & (middle <= high), middle, low)
            high = np.where(good, high, np.minimum(high, middle - 1.0))
            low = np.minimum(low, np.maximum(high, low))
        rate = self._rate(np.maximum(low, 1.0))
        step = self.ranks * self.batches
        full = np.maximum(np.floor(low / step) * step, 1.0)
        rate = np.maximum(rate, np.where(full >= step, self._rate(full), 0.0))
        return Bounds(
            per_rank=np.where(low > 0, np.ceil(low / self.ranks), 0).astype(np.int64),
            requests_per_s=np.where(low > 0, rate, 0.0),
            fits=short <= 0,
            short_bytes=short,
            least_tpot_s=alone,
            least_ttft_s=np.zeros(count),
        )

    def _holds(self, total: Array, period: Array, short: Array) -> NDArray[np.bool_]:
        target = self.instance.slo.tpot
        good = short <= 0
        if target is not None:
            good &= period <= target * (1 + RELATIVE)
        return np.asarray(good)

    def _rate(self, total: Array) -> Array:
        return np.asarray(total / (self.period_s(total) * self.instance.workload.decode_steps))


def group_chips(stand: Footing, classes: Sequence[PoolClass]) -> tuple[list[str], list[str]]:
    """Chips of attention and of experts on the first pools of their classes."""
    (home, pools, attention), (other, more, experts) = stand.attention, stand.experts
    if stand.together:
        chips = classes[home].pools[0].chips
        return list(chips[:attention]), list(chips[attention : attention + experts])
    first = pools if home == other else 0
    groups = classes[home].pools[:pools], classes[other].pools[first : first + more]
    return (
        [chip for pool in groups[0] for chip in pool.chips[:attention]],
        [chip for pool in groups[1] for chip in pool.chips[:experts]],
    )
