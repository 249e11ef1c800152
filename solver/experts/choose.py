"""Which search answers a placement request: one workload, several, nodes with groups, or few moves.

All bounds here are shares of a layer's load on the busiest chip.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.coactivation import CoActivation
from costmodel.experts.expert_load import ExpertLoads
from solver.experts import load_bounds, place_layers, place_windows
from solver.experts.nodes.trade_off import over_nodes
from solver.experts.request import Found, PlaceOptions, chooses_nodes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def choose_placement(
    loads: ExpertLoads,
    options: PlaceOptions,
    current: Ints | None,
    together: CoActivation | None = None,
) -> Found:
    """The placement for ``options``. Raises ``InstanceError`` for impossible requests."""
    slots = options.slots_per_chip()
    total = loads.total
    most = options.most_moves()
    if current is not None and most is not None:
        from solver.experts.rebalance import rebalance

        moved, moves = rebalance(total, current, slots, max_moves=most)
        return Found(moved.physical_to_logical, bounds(loads, options), int(moves.sum()))
    if options.objective != "sum" and len(loads.windows) > 1:
        spread = place_windows(
            loads.windows,
            slots,
            objective="worst" if options.objective == "worst" else "mean",
            effort=options.effort,
            time_limit_s=options.time_limit_s,
            seed=options.seed,
            workers=options.workers,
        )
        return Found(spread.physical_to_logical, spread.bound)
    nodes = chooses_nodes(loads, options, False, together is not None)
    limit = options.time_limit_s
    ends = None if limit is None else time.monotonic() + limit
    found = place_layers(
        total,
        slots,
        effort=options.effort,
        time_limit_s=limit / 2 if nodes and limit is not None else limit,
        seed=options.seed,
        workers=options.workers,
    )
    bound = found.bound if options.dispatch == "even" else bounds(loads, options)
    best = Found(found.physical_to_logical, bound)
    return over_nodes(total, options, best, together, ends=ends) if nodes else best


def bounds(loads: ExpertLoads, options: PlaceOptions) -> Floats:
    """Bound valid under every dispatch, for the objective over the windows."""
    windows = loads.total[None] if options.objective == "sum" else loads.windows
    each = np.stack([load_bounds(window, options.gpus, options.slots) for window in windows])
    bound: Floats = each.max(axis=0) if options.objective == "worst" else each.mean(axis=0)
    return bound
