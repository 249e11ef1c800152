"""Placement of recorded expert loads as people use it: options in, a judged placement out.

The placement is found by the solver and judged by the cost model's evaluator.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.coactivation import CoActivation
from costmodel.experts.coactivation_files import read_coactivation
from costmodel.experts.expert_load import ExpertLoads, read_loads
from rackfit.placement.alike import place_alike
from rackfit.placement.checks import check_options, check_together
from rackfit.placement.files import loads_path
from rackfit.placement.left_out import judge_left_out, without
from rackfit.placement.placed import Placed
from rackfit.placement.sharing import place_sharing
from solver.experts.request import PlaceOptions
from topology.errors import InstanceError, Problem

Floats = NDArray[np.float64]


def place(
    loads: ExpertLoads | str | Path,
    options: PlaceOptions,
    current: NDArray[np.int64] | None = None,
    coactivation: CoActivation | str | Path | None = None,
    leave_out: Sequence[str] = (),
) -> Placed:
    """Place recorded loads, from scratch or with few moves from ``current [layers, slots]``.

    ``loads`` may be a file of recorded counts or a shipped name (``rackfit catalogue loads``).
    ``coactivation`` (or its file) says which experts tokens use together: copies to other nodes then
    follow from it, and a node holds experts that are used together.
    Experts per token that the recording tells count where ``options`` say none.
    ``leave_out`` names recordings of ``loads`` that the search does not see; the placement is judged on them.
    Raises ``InstanceError`` for impossible requests.

    >>> import rackfit
    >>> placed = rackfit.place("olmoe-1b-7b", rackfit.PlaceOptions(gpus=8, slots=72))
    >>> placed.table.physical_to_logical.shape
    (3, 72)
    >>> bool((placed.imbalance >= placed.bound).all())
    True
    """
    start = time.perf_counter()
    if not isinstance(loads, ExpertLoads):
        loads = read_loads(loads_path(str(loads)))
    if options.top_k is None:
        options = replace(options, top_k=loads.top_k)
    check_options(loads, options, moved=current is not None, together=coactivation is not None)
    if leave_out:
        kept, left = without(loads, leave_out)
        if options.layer_slots != "same":
            message = "left-out recordings are judged with equally many slots in every layer"
            raise InstanceError(Problem("--layer-slots", message))
        begun, searches = time.monotonic(), 1 + len(left.names)
        found = place(kept, options.part_of_time(begun, searches), current, coactivation)
        judged = judge_left_out(np.array(found.table.rows()), kept, left, options, begun)
        return replace(found, left_out=judged, wall_s=time.perf_counter() - start)
    if options.layer_slots != "same":
        return place_sharing(loads, options)
    together = coactivation
    if together is not None:
        check_together(loads, options, current is not None)
        if not isinstance(together, CoActivation):
            together = read_coactivation(together, loads, top_k=options.top_k)
    found = place_alike(loads, options, current, together)
    return replace(found, wall_s=time.perf_counter() - start)
