"""Experts on slots for the shapes of a search: placed as well as can be, or as an engine starts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from costmodel.question.instance import Instance
from solver.bounds.experts.expert_bounds import copies_are_hot
from solver.bounds.experts.ordered_bounds import placed_in_order
from solver.clock import Clock
from solver.experts import LayerPlacements, place_layers

Array = NDArray[np.float64]
#: expert of each slot ``[moe layers, slots]``, and a lower bound on the busiest chip's share ``[moe layers]``
PlacedExperts = tuple[NDArray[np.int64], Array]
#: loads (bytes and shape), slots by chip, seed, whether busier experts have as many copies
_Key = tuple[bytes, tuple[int, ...], tuple[int, ...], int, bool]

#: placements that are kept for other questions of a model: the same loads on other chips or units
_MOST_KEPT = 64
_kept: dict[_Key, LayerPlacements] = {}
_changing = Lock()


def engine_places(instance: Instance, attention_dp: int) -> bool:
    """Whether experts may lie where the solver says; always, where no engine is named."""
    engine = instance.engine
    return engine is None or engine.places_experts(instance.model, attention_dp)


class Placements:
    """Placements that shapes share, made once.

    ``hot_copies``: no expert has more copies than a busier one, which is what the bounds of shapes assume.
    """

    def __init__(self, instance: Instance, clock: Clock, seed: int, *, hot_copies: bool):
        self.instance = instance
        self.clock = clock
        self.seed = seed
        self.hot_copies = hot_copies
        self._free: dict[tuple[int, int], PlacedExperts] = {}

    def of(self, slots_per_chip: Sequence[int], *, free: bool) -> PlacedExperts:
        """Experts on these chips; ``free``: anywhere, else in order."""
        chips, slots = len(slots_per_chip), sum(slots_per_chip)
        if not slots:  # a dense model, or experts cut over all chips
            layers = len(self.instance.operations.moe_layers) if chips else 0
            return np.zeros((0, 0), dtype=np.int64), np.full(layers, 1.0 / max(chips, 1))
        if chips > 1 and not free:
            return placed_in_order(self.instance.expert_loads, slots_per_chip)
        if (chips, slots) not in self._free:
            self._free[chips, slots] = self._place(slots_per_chip)
        return self._free[chips, slots]

    def _place(self, slots_per_chip: Sequence[int]) -> PlacedExperts:
        limit = self.clock.remaining_s
        loads = self.instance.expert_loads
        placed = kept_placement(
            loads, slots_per_chip, self.seed,
            None if limit == float("inf") else max(limit / 4, 0.2),
            hot_copies=self.hot_copies,
        )  # fmt: skip
        return self.covered(loads, placed.physical_to_logical, slots_per_chip), placed.bound

    def covered(
        self, loads: Array, experts: NDArray[np.int64], slots_per_chip: Sequence[int]
    ) -> NDArray[np.int64]:
        """The placements, or where the bound does not cover one of them, one that it covers."""
        if not self.hot_copies:
            return experts
        cold = ~copies_are_hot(loads, experts)
        if cold.any():
            experts = experts.copy()
            experts[cold] = place_layers(
                loads[cold], slots_per_chip, effort="fast"
            ).physical_to_logical
        return experts


def kept_placement(
    loads: Array,
    slots_per_chip: Sequence[int],
    seed: int,
    limit_s: float | None,
    *,
    hot_copies: bool = False,
) -> LayerPlacements:
    """:func:`place_layers`, or what it answered to the same question before unless time cut that short."""
    key = loads.tobytes(), loads.shape, tuple(slots_per_chip), seed, hot_copies
    with _changing:
        known = _kept.get(key)
    if known is not None:
        return known
    began = time.perf_counter()
    placed = place_layers(
        loads, slots_per_chip,
        effort="enough", time_limit_s=limit_s, seed=seed, hot_copies=hot_copies,
    )  # fmt: skip
    if limit_s is None or time.perf_counter() - began < limit_s:
        with _changing:
            while len(_kept) >= _MOST_KEPT:
                del _kept[next(iter(_kept))]
            _kept[key] = placed
    return placed
