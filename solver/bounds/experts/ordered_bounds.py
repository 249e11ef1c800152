"""The busiest chip of a MoE layer where experts lie in order, because the engine loads no placement.

Nothing is left to choose: chip ``c`` of ``n`` holds the slots of its share of ``0, 1, .., E-1, 0, 1, ..``, so that the
load and the experts touched are those of the evaluator, not those of the best placement.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.moe_load import expert_shares, touch_probability
from costmodel.layout.layout import spread
from costmodel.question.engine import EngineFacts, in_order
from costmodel.question.instance import Instance
from solver.bounds.experts.expert_bounds import GRID, Array, ExpertBounds

#: sums of differences are taken this much lower, so that rounding never lifts a bound
_ROUNDED = 1.0 - 1e-12


def never_places(instance: Instance) -> bool:
    """Whether the engine of the question starts every replica with experts in order."""
    engine: EngineFacts | None = instance.engine
    return engine is not None and not any(
        engine.places_experts(instance.model, ranks) for ranks in (1, 2)
    )


def placed_in_order(loads: Array, slots_per_chip: Sequence[int]) -> tuple[NDArray[np.int64], Array]:
    """Experts in order, chip by chip ``[layers, slots]``, and the busiest chip's share ``[layers]``.

    ``loads [layers, experts]`` have rows that sum to 1; copies of an expert share its tokens evenly.
    """
    layers, experts = loads.shape
    row = np.array(in_order(experts, sum(slots_per_chip)), dtype=np.int64)
    share = loads / np.bincount(row, minlength=experts)
    starts = np.cumsum([0, *slots_per_chip[:-1]])
    busiest = np.add.reduceat(share[:, row], starts, axis=1).max(axis=1)
    return np.tile(row, (layers, 1)), busiest


class OrderedBounds(ExpertBounds):
    """:class:`ExpertBounds` that are exact, for experts in order."""

    @cached_property
    def _reached(self) -> tuple[Array, Array]:
        """``[grid, layers, experts + 1]``: experts touched among the first, with one copy of each and with two."""
        one, two = (
            touch_probability(self.loads[None], self.top_k, GRID[:, None, None], copies).cumsum(-1)
            for copies in (1.0, 2.0)
        )
        start = np.zeros((*one.shape[:2], 1))
        return np.concatenate([start, one], axis=2), np.concatenate([start, two], axis=2)

    def layer_loads(self, chips: int, slots: int) -> Array:
        """``[layers]``: the busiest chip's share in each layer."""
        key = (chips, slots)
        if key not in self._load:
            self._load[key] = placed_in_order(self.loads, spread(slots, chips))[1]
        return self._load[key]

    def touched_on_grid(self, chips: int, slots: int) -> tuple[Array, Array]:
        """``[grid]``: mean and least over layers of the experts that the busiest chip touches."""
        spare = slots - self.num_experts
        if not 0 <= spare <= self.num_experts:
            return super().touched_on_grid(chips, slots)
        key = (chips, slots)
        if key not in self._touched:
            ends = np.cumsum([0, *spread(slots, chips)])
            most = np.diff(self._among_first(ends, spare), axis=-1).max(axis=-1) * _ROUNDED
            self._touched[key] = (most.mean(axis=1), most.min(axis=1))
        return self._touched[key]

    def _among_first(self, slots: NDArray[np.int64], spare: int) -> Array:
        """``[grid, layers, slots]``: touched among so many first slots; the first ``spare`` experts lie twice."""
        one, two = self._reached
        experts = self.num_experts
        first, again = np.minimum(slots, experts), np.maximum(slots - experts, 0)
        twice = np.minimum(first, spare)
        once = one[..., np.maximum(first, spare)] - one[..., [spare]]
        return np.asarray(two[..., twice] + once + two[..., again])

    def touched_by_layer(self, chips: int, slots: int, tokens: float) -> Array:
        """``[layers]``: experts that the busiest chip touches, at exactly these tokens."""
        own = spread(slots, chips)
        rows, _ = placed_in_order(self.loads, own)
        return expert_shares(self.loads, rows, own, self.top_k, tokens).most_touched * _ROUNDED
