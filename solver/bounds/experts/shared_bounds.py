r"""Bounds of shapes whose layers share their expert slots, each in any number.

A shape's slots are then a range: more than ``fewest`` and at most ``slots`` to a layer on average, where
``fewest`` is the next smaller number of slots that shapes have. Over all shapes every total is in one range.

A chip holds ``fewest`` slots to a layer on average at least, and the layers' mean busiest share is at least
:class:`solver.experts.bounds.shared_bound.SharedBound` of the largest total. Experts that the busiest chip touches at
least, with ``g_e(r)``, ``f_e(r) = r g_e(r)`` and ``n`` chips as in :mod:`solver.bounds.experts.expert_bounds`:

- over all layers the average: an expert with ``r`` replicas adds ``(r - 1) (f(n) - f(1)) / (n - 1)`` or more, as
  ``f`` is concave, least for the coldest expert of any layer, and there are ``fewest`` slots or more to a layer;
- in each layer the least of these over its numbers of slots ``s = E + R``: the average with ``R`` spare slots, and
  the fullest chips: ``q`` of them hold ``K = q ceil(s / n)`` slots, of which ``2 R`` at most belong to copied experts, each
  touched like the coldest that may be copied, with as many replicas as there can be. The other ``K - h`` are single
  experts, touched no less than the ``K - h`` coldest. One of the ``q`` touches at least a ``q``-th of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.moe_load import touch_probability
from costmodel.question.instance import Instance
from solver.bounds.experts.expert_bounds import GRID, ExpertBounds
from solver.experts.bounds.shared_bound import SharedBound
from solver.shapes.shapes import slot_counts

Array = NDArray[np.float64]

#: spare slots of a layer up to which each number is looked at
_EACH = 64


def bounds_of_shared_slots(
    instance: Instance, top_k: float, *, hot_copies: bool
) -> SharedSlotBounds:
    """Bounds for the slots that the layers of a question share."""
    counts = lru_cache(partial(slot_counts, instance))
    rows = instance.scenario.layer_slots == "rows"
    return SharedSlotBounds(instance.expert_loads, top_k, counts, hot_copies=hot_copies, rows=rows)


class SharedSlotBounds(ExpertBounds):
    """Bounds where ``slots`` is the upper end of a range that layers share as they like.

    ``counts_of(chips)``: every number of slots that shapes of so many chips have, rising; the first is no
    range but that number in every layer.
    """

    def __init__(
        self,
        loads: Array,
        top_k: float,
        counts_of: Callable[[int], Sequence[int]],
        *,
        hot_copies: bool,
        rows: bool,
    ):
        """``rows``: a layer's chips have equally many slots, except where no slot is spare."""
        super().__init__(loads, top_k, hot_copies=hot_copies)
        self._counts_of = counts_of
        self._rows = rows
        self._shared: dict[int, SharedBound] = {}
        self._copied: dict[tuple[int, int], tuple[Array, NDArray[np.int64]]] = {}
        self._least_touched: dict[int, Array] = {}

    def fewest(self, chips: int, slots: int) -> int:
        """Slots to a layer, on average, of which every layout in the range has more (or as many, in the first)."""
        return max((n for n in self._counts_of(chips) if n < slots), default=slots)

    def load(self, chips: int, slots: int) -> tuple[float, float]:
        """Mean and least over layers of the busiest chip's share, for any share of the slots."""
        if self.fewest(chips, slots) == slots:
            return super().load(chips, slots)
        key = (chips, slots)
        if key not in self._mean_and_least:
            if chips not in self._shared:
                most = self._counts_of(chips)[-1]
                self._shared[chips] = SharedBound(self._load_bounds, chips, most)
            budget = slots * len(self.loads)
            self._mean_and_least[key] = self._shared[chips].mean_and_least(budget)
        return self._mean_and_least[key]

    def touched_on_grid(self, chips: int, slots: int) -> tuple[Array, Array]:
        """``[grid]``: mean and least over layers of the experts the busiest chip touches at least."""
        fewest = self.fewest(chips, slots)
        if fewest == slots:
            return super().touched_on_grid(chips, slots)
        key = (chips, slots)
        if key not in self._touched:
            added = (fewest - self.num_experts) * self._added_by_one(chips).min(axis=1)
            average = self._single[0, :, -1] + added
            by_layer = self._by_layer(chips)
            mean = np.maximum(average / chips, by_layer.mean(axis=1))
            self._touched[key] = (mean, by_layer.min(axis=1))
        return self._touched[key]

    @cached_property
    def _coldest_first(self) -> Array:
        """``[grid, layers, experts + 1]``: sums of the smallest ``g_e(1)`` of each layer."""
        sums = self._touch_sorted.cumsum(axis=-1)
        return np.concatenate([np.zeros((*sums.shape[:2], 1)), sums], axis=2)

    @cached_property
    def _touch_sorted(self) -> Array:
        loads = np.sort(self.loads, axis=1)[None]
        return touch_probability(loads, self.top_k, GRID[:, None, None], 1.0)

    def _by_layer(self, chips: int) -> Array:
        """``[grid, layers]``: touched experts of a layer's busiest chip, whatever slots it has."""
        if chips not in self._least_touched:
            experts, most = self.num_experts, self._counts_of(chips)[-1]
            fewest = max(experts, chips)
            found = np.full((len(GRID), len(self.loads)), np.inf)
            for slots in range(fewest, min(most, fewest + _EACH) + 1):
                if not self._rows or slots % chips == 0 or slots == fewest:
                    found = np.minimum(found, self._with_slots(chips, slots))
            if most > fewest + _EACH:  # more slots touch more on average
                beyond = (fewest + _EACH + 1 - experts) * self._added_by_one(chips)
                found = np.minimum(found, (self._coldest_first[:, :, -1] + beyond) / chips)
            self._least_touched[chips] = found
        return self._least_touched[chips]

    def _with_slots(self, chips: int, slots: int) -> Array:
        """``[grid, layers]``: the same for a layer of so many slots."""
        spare, single = slots - self.num_experts, self._coldest_first
        added = self._added(self._coldest_copied(spare), spare, chips) if spare else 0.0
        average = (single[:, :, -1] + added) / chips
        full = -(-slots // chips)
        fullest = slots - (full - 1) * chips
        held = full * fullest
        copied, colder = self._copy(spare, chips)
        least = max(0, held - max(0, self.num_experts - spare))
        copies = np.clip(held - colder, least, max(least, min(2 * spare, held)))
        alone = np.take_along_axis(single, (held - copies)[:, :, None], axis=2)[:, :, 0]
        return np.asarray(np.maximum(average, (alone + copies * copied) / fullest))

    def _copy(self, spare: int, chips: int) -> tuple[Array, NDArray[np.int64]]:
        """``[grid, layers]``: least touch of a copied expert's slot, and how many single experts have less."""
        key = (spare, min(spare + 1, chips))
        if key not in self._copied:
            cold = self._coldest_copied(max(spare, 1))[None]
            copied = touch_probability(cold, self.top_k, GRID[:, None], float(key[1]))
            colder = (self._touch_sorted <= copied[:, :, None]).sum(axis=2)
            self._copied[key] = (copied, colder)
        return self._copied[key]

    def _added(self, cold: Array, spare: int, chips: int) -> Array:
        """``[grid, layers]``: what spare replicas add at least, none colder than ``cold [layers]``."""
        pile = min(spare + 1, chips)
        alone = touch_probability(cold[None], self.top_k, GRID[:, None], 1.0)
        spread = pile * touch_probability(cold[None], self.top_k, GRID[:, None], float(pile))
        return np.asarray((spread - alone) * spare / (pile - 1))

    def _added_by_one(self, chips: int) -> Array:
        """``[grid, layers]``: what each spare slot adds at least, in a layer of any number of slots."""
        most = self._counts_of(chips)[-1] - self.num_experts
        return np.asarray(self._added(self._coldest_copied(most), most, chips) / most)
