"""Placement of recorded expert loads as people use it: options in, a judged placement out.

The placement is found by the solver and judged by the cost model's evaluator.
"""

from __future__ import annotations

import time
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
from rackfit.placement.placed import Placed
from rackfit.placement.sharing import place_sharing
from solver.experts.request import PlaceOptions

Floats = NDArray[np.float64]


def place(
    loads: ExpertLoads | str | Path,
    options: PlaceOptions,
    current: NDArray[np.int64] | None = None,
    coactivation: CoActivation | str | Path | None = None,
) -> Placed:
    """Place recorded loads, from scratch or with few moves from ``current [layers, slots]``.

    ``loads`` may be a file of recorded counts or a shipped name (``rackfit catalogue loads``).
    ``coactivation`` (or its file) says which experts tokens use together: copies to other nodes then
    follow from it, and a node holds experts that are used together.
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
    check_options(loads, options, moved=current is not None, together=coactivation is not None)
    if options.layer_slots != "same":
        return place_sharing(loads, options)
    together = coactivation
    if together is not None:
        check_together(loads, options, current is not None)
        if not isinstance(together, CoActivation):
            together = read_coactivation(together, loads, top_k=options.top_k)
    found = place_alike(loads, options, current, together)
    return replace(found, wall_s=time.perf_counter() - start)
