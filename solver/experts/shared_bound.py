r"""A bound on the mean busiest chip over layers, however a budget of slots is shared among them.

With ``b_l(s)`` the proven bound of layer ``l`` with ``s`` slots, every ``price >= 0`` of a slot gives

    sum_l b_l(s_l)  >=  sum_l min_s (b_l(s) + price s)  -  price B

for all shares with ``sum_l s_l <= B`` (weak duality); the largest over some prices is taken. Between two counts
on the grid ``b_l`` is at least its value at the larger one, at the price of the smaller one.
"""

from __future__ import annotations

import numpy as np

from solver.experts.bounds import ROUNDING, LoadBounds

#: spare slots at which the layers' bounds are computed
_GRID = np.unique(np.round(np.geomspace(1, 4096, 40)).astype(np.int64))
#: prices of a slot, as parts of a mean chip's load in a mean slot
_PRICES = np.concatenate([[0.0], np.geomspace(1e-4, 1e2, 73)])


def shared_bound(bounds: LoadBounds, num_chips: int, most: int, budget: int) -> tuple[float, float]:
    """Mean over layers of the busiest chip's share at least, and the least of one layer.

    Every layer has between one slot per expert and chip and ``most``; ``budget`` slots over all layers.
    """
    layers, experts = bounds.shares.shape
    fewest = max(experts, num_chips)
    grid = fewest + _GRID
    counts = np.unique(np.concatenate([[fewest], grid[grid < most], [most]]))
    value = np.stack([bounds.bound(num_chips, int(count)) for count in counts], axis=1)
    from_count = np.concatenate([counts[:1], counts[:-1] + 1])
    prices = _PRICES / (num_chips * fewest)
    cheapest = (value[None] + prices[:, None, None] * from_count).min(axis=2).sum(axis=1)
    mean = float((cheapest - prices * budget).max()) / layers
    return max(mean * (1 - ROUNDING), float(value[:, -1].mean())), float(value[:, -1].min())
