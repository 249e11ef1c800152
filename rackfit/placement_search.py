"""Which search answers a placement request: one workload, several, nodes with groups, or few moves.

All bounds here are shares of a layer's load on the busiest chip.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from costmodel.dispatch import chip_loads, imbalance
from costmodel.expert_load import ExpertLoads
from costmodel.fanout import remote_copies
from solver.experts import load_bounds, place_layers, place_windows
from topology.errors import InstanceError, Problem

if TYPE_CHECKING:
    from rackfit.placement import PlaceOptions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Worth of a remote copy against a mean node's load, for the points of the trade-off curve.
PRICES = (0.0, 0.25, 0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class Found:
    """A placement, its bound per layer, moves used, and points (imbalance, copies) of the trade-off."""

    physical_to_logical: Ints
    bound: Floats
    moves: int | None = None
    trade_off: list[tuple[float, float]] = field(default_factory=list)


def search(loads: ExpertLoads, options: PlaceOptions, current: Ints | None) -> Found:
    """The placement for ``options``. Raises ``InstanceError`` for impossible requests."""
    slots = options.slots_per_chip()
    total = loads.total
    most = options.most_moves()
    if current is not None or most is not None:
        if current is None or most is None:
            raise InstanceError(
                Problem(
                    "--max-moves",
                    "needs --current, and --current needs --max-moves or --max-bytes",
                )
            )
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
    found = place_layers(
        total,
        slots,
        effort=options.effort,
        time_limit_s=options.time_limit_s,
        seed=options.seed,
        workers=options.workers,
    )
    bound = found.bound if options.dispatch == "even" else bounds(loads, options)
    best = Found(found.physical_to_logical, bound)
    if chooses_nodes(loads, options, False):
        return over_nodes(total, options, best)
    return best


def chooses_nodes(loads: ExpertLoads, options: PlaceOptions, moved: bool) -> bool:
    """Whether balance is weighed against copies to other nodes: one workload, groups, several nodes.

    ``moved``: from a running placement by few moves, where it is not.
    """
    several = options.objective != "sum" and len(loads.windows) > 1
    per_node = options.gpus_per_node or options.gpus
    return not moved and not several and options.groups > 1 and options.gpus > per_node


def bounds(loads: ExpertLoads, options: PlaceOptions) -> Floats:
    """Bound valid under every dispatch, for the objective over the windows."""
    windows = loads.total[None] if options.objective == "sum" else loads.windows
    each = np.stack([load_bounds(window, options.gpus, options.slots) for window in windows])
    bound: Floats = each.max(axis=0) if options.objective == "worst" else each.mean(axis=0)
    return bound


def over_nodes(total: Floats, options: PlaceOptions, flat: Found) -> Found:
    """The point of the trade-off between balance and traffic that costs each layer least.

    Points: groups at home (hierarchical), spare slots abroad at several worths of a copy, and the
    placement that ignores nodes. Cost of a layer: ``imbalance + copy_cost * copies``.
    """
    from solver.experts.copies import Routing
    from solver.experts.nodes import place_on_nodes

    top_k = options.experts_per_token(total.shape[1])
    per_node = options.gpus_per_node or options.gpus
    tables = [flat.physical_to_logical]
    for abroad, price in ((0, 0.0), *((None, price) for price in PRICES)):
        tables.append(
            place_on_nodes(
                total,
                options.gpus,
                options.slots,
                chips_per_node=per_node,
                groups=options.groups,
                abroad=abroad,
                routing=Routing(top_k, options.top_groups, price),
                seed=options.seed,
                workers=options.workers,
            ).physical_to_logical
        )
    node = np.arange(options.slots) // (options.slots // options.gpus * per_node)
    points = []
    for table in tables:
        load = chip_loads(
            table,
            total,
            options.slots // options.gpus,
            dispatch=options.dispatch,
            chips_per_node=per_node,
        )
        copies = remote_copies(
            table,
            total,
            node,
            top_k=top_k,
            num_groups=options.groups,
            top_groups=options.top_groups,
            local_first=options.dispatch == "sglang-static",
        )
        points.append((imbalance(load), copies))
    cost = np.stack([balance + options.copy_cost * copies for balance, copies in points])
    best = cost.argmin(axis=0)
    rows = np.arange(len(total))
    return Found(
        np.stack(tables)[best, rows],
        flat.bound,
        trade_off=[(float(balance.mean()), float(copies.mean())) for balance, copies in points],
    )
