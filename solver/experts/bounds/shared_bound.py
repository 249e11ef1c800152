r"""A bound on the mean busiest chip over layers, however a budget of slots is shared among them.

With ``b_l(s)`` the proven bound of layer ``l`` with ``s`` slots, every ``price >= 0`` of a slot gives

    sum_l b_l(s_l)  >=  sum_l min_s (b_l(s) + price s)  -  price B

for all shares with ``sum_l s_l <= B`` (weak duality); the largest over some prices is taken. Between two counts
on the grid ``b_l`` is at least its value at the larger one, at the price of the smaller one.
"""

from __future__ import annotations

import numpy as np

from solver.experts.bounds.closed_form import ROUNDING, LoadBounds

#: spare slots at which the layers' bounds are computed
_GRID = np.unique(np.round(np.geomspace(1, 4096, 40)).astype(np.int64))
#: prices of a slot, as parts of a mean chip's load in a mean slot
_PRICES = np.concatenate([[0.0], np.geomspace(1e-4, 1e2, 73)])


class SharedBound:
    """Bounds for layers that share slots on ``num_chips`` chips, ``most`` to a layer at most.

    Every layer has at least one slot per expert and per chip.
    """

    def __init__(self, bounds: LoadBounds, num_chips: int, most: int):
        self.layers, experts = bounds.shares.shape
        fewest = max(experts, num_chips)
        grid = fewest + _GRID
        counts = np.unique(np.concatenate([[fewest], grid[grid < most], [most]]))
        value = np.stack([bounds.bound(num_chips, int(count)) for count in counts], axis=1)
        from_count = np.concatenate([counts[:1], counts[:-1] + 1])
        self._prices = _PRICES / (num_chips * fewest)
        priced = value[None] + self._prices[:, None, None] * from_count
        self._cheapest = priced.min(axis=2).sum(axis=1)
        self._floor = value[:, -1]

    def mean_and_least(self, budget: int) -> tuple[float, float]:
        """Mean over layers of the busiest chip's share with ``budget`` slots over all, and the least of one layer."""
        mean = float((self._cheapest - self._prices * budget).max()) / self.layers
        return max(mean * (1 - ROUNDING), float(self._floor.mean())), float(self._floor.min())
