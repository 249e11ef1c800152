"""A judged placement with equally many expert slots in every layer."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.coactivation import CoActivation
from costmodel.experts.dispatch import chip_loads, imbalance, replica_counts
from costmodel.experts.expert_load import ExpertLoads
from costmodel.question.engine import in_order
from rackfit.exporters.placements.table import PlacementTable
from rackfit.placement.compared import compare
from rackfit.placement.placed import Placed
from solver.experts.choose import choose_placement
from solver.experts.nodes.trade_off import node_copies
from solver.experts.request import PlaceOptions


def window_ratios(
    physical_to_logical: NDArray[np.int64], loads: ExpertLoads, options: PlaceOptions
) -> NDArray[np.float64]:
    """Load of the busiest chip over the mean ``[windows, layers]``; one window where they are summed."""
    windows = loads.total[None] if options.objective == "sum" else loads.windows
    return np.stack(
        [
            imbalance(
                chip_loads(
                    physical_to_logical,
                    window,
                    options.slots_per_chip(),
                    dispatch=options.dispatch,
                    chips_per_node=options.gpus_per_node,
                )
            )
            for window in windows
        ]
    )


def over_windows(ratios: NDArray[np.float64], options: PlaceOptions) -> NDArray[np.float64]:
    """The same layer by layer, as the objective weighs the windows."""
    return np.asarray(ratios.max(axis=0) if options.objective == "worst" else ratios.mean(axis=0))


def balance_before(
    loads: ExpertLoads, options: PlaceOptions, current: NDArray[np.int64] | None
) -> float:
    """Mean over layers of the busiest chip over the mean, of a running placement or as engines start."""
    if current is None:
        row = in_order(loads.num_experts, sum(options.slots_per_chip()))
        current = np.tile(np.array(row, dtype=np.int64), (len(loads.total), 1))
    return float(over_windows(window_ratios(current, loads, options), options).mean())


def place_alike(
    loads: ExpertLoads,
    options: PlaceOptions,
    current: NDArray[np.int64] | None = None,
    together: CoActivation | None = None,
) -> Placed:
    """The solver's placement for checked ``options``, judged by the evaluator."""
    start = time.perf_counter()
    found = choose_placement(loads, options, current, together)
    slots = options.slots_per_chip()
    table = PlacementTable(
        found.physical_to_logical, loads.num_experts, slots, loads.layer_ids, loads.num_layers
    )
    ratios = window_ratios(found.physical_to_logical, loads, options)
    ratio = over_windows(ratios, options)
    copies = node_copies(found.physical_to_logical, loads.total, options, together)
    compared = None
    if together is not None:
        compared = compare(found.physical_to_logical, loads.total, options, together)
    return Placed(
        table,
        replica_counts(found.physical_to_logical, loads.num_experts),
        ratio,
        np.minimum(found.bound * options.gpus, ratio),
        copies,
        time.perf_counter() - start,
        options,
        found.moves,
        found.trade_off,
        ratios.mean(axis=1),
        loads.names if len(ratios) == len(loads.names) else ("sum",),
        found.by_layer,
        compared,
    )
