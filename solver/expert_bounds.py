r"""Proven lower bounds on the busiest chip of a MoE layer, for every placement with these slots.

*Load*: the busiest chip's share of the routed tokens (see :func:`solver.experts.load_bounds`).

*Touched experts*: with ``g_e(r) = 1 - (1 - q_e / r)^B`` the chance that a replica is reached and
``f_e(r) = r g_e(r)`` (increasing and concave in ``r``), the busiest chip is at least

- the average, ``sum_e f_e(r_e) / n``. As ``f`` is concave, ``R`` spare replicas add least when they
  pile on the coldest expert: at least ``f(1 + R) - f(1)`` for ``R < n``, else ``R`` times the mean
  increment of a fully spread coldest expert;
- the pigeonhole: at least ``E - R`` experts have one replica, so some chip holds ``ceil((E-R)/n)`` of
  them and touches no less than the sum of that many smallest ``g_e(1)``.

Bounds are averaged over layers: a sum of maxima is never below the maximum of sums.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.moe_load import touch_probability
from solver.experts import load_bounds

Array = NDArray[np.float64]

#: batches (tokens over all ranks) between which touched experts are bounded from below
_GRID = np.unique(np.round(np.geomspace(1, 2**22, 67))).astype(float)


class ExpertBounds:
    """Bounds for one model's expert loads ``[layers, experts]`` (rows sum to 1)."""

    def __init__(self, loads: Array, top_k: float):
        self.loads = loads
        self.top_k = top_k
        self.num_experts = loads.shape[1]
        self._load: dict[tuple[int, int], Array] = {}
        self._touched: dict[tuple[int, int], Array] = {}

    @cached_property
    def _single(self) -> Array:
        """``[grid, experts + 1]``: mean over layers of the sum of the j smallest ``g_e(1)``."""
        touch = touch_probability(
            np.sort(self.loads, axis=1)[None], self.top_k, _GRID[:, None, None], 1.0
        )
        sums = touch.cumsum(axis=-1).mean(axis=1)
        return np.concatenate([np.zeros((len(_GRID), 1)), sums], axis=1)

    @cached_property
    def _coldest(self) -> Array:
        """``[layers]``: load share of each layer's coldest expert."""
        return np.asarray(self.loads.min(axis=1))

    def layer_loads(self, chips: int, slots: int) -> Array:
        """``[layers]``: bound on the busiest chip's share in each layer."""
        key = (chips, slots)
        if key not in self._load:
            self._load[key] = load_bounds(self.loads, chips, slots)
        return self._load[key]

    def load(self, chips: int, slots: int) -> float:
        """Mean over layers of the busiest chip's share."""
        return float(self.layer_loads(chips, slots).mean())

    def touched_on_grid(self, chips: int, slots: int) -> Array:
        """``[grid]``: mean over layers of the experts that the busiest chip touches at least."""
        key = (chips, slots)
        if key not in self._touched:
            spare = slots - self.num_experts
            extra = self._extra(spare, chips) if spare > 0 and chips > 1 else 0.0
            average = (self._single[:, -1] + extra) / chips
            alone = max(self.num_experts - max(spare, 0), 0)
            pigeonhole = self._single[:, -(-alone // chips)]
            self._touched[key] = np.maximum(average, pigeonhole)
        return self._touched[key]

    def _extra(self, spare: int, chips: int) -> Array:
        """``[grid]``: least that ``spare`` replicas add to the sum of touched slots."""
        cold, tokens = self._coldest[None, :], _GRID[:, None]
        pile = min(spare + 1, chips)
        spread = pile * touch_probability(cold, self.top_k, tokens, float(pile))
        alone = touch_probability(cold, self.top_k, tokens, 1.0)
        return np.asarray(((spread - alone) * spare / (pile - 1)).mean(axis=1))

    def touched(self, tables: Array, tokens: Array) -> Array:
        """Look up rows of :meth:`touched_on_grid` at the grid point below ``tokens``."""
        place = np.clip(np.searchsorted(_GRID, tokens, side="right") - 1, 0, len(_GRID) - 1)
        found = tables[np.arange(len(tokens)), place]
        return np.where(tokens < 1.0, 0.0, found)
