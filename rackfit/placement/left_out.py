"""A placement judged on recordings that the search did not see, beside EPLB and placements made for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.expert_load import ExpertLoads
from rackfit.placement.alike import place_alike, window_ratios
from rackfit.placement.placed import LeftOut
from solver.experts.eplb import eplb
from solver.experts.request import PlaceOptions
from topology.errors import InstanceError, Problem


def without(loads: ExpertLoads, names: Sequence[str]) -> tuple[ExpertLoads, ExpertLoads]:
    """The recordings that are kept, and those of ``names``. Raises ``InstanceError``."""
    known = ", ".join(loads.names[:20]) + (", .." if len(loads.names) > 20 else "")
    problems = [
        Problem("--leave-out", f"no recording is called {name!r}; recorded: {known}")
        for name in names
        if name not in loads.names
    ]
    if not problems and set(names) == set(loads.names):
        problems.append(
            Problem("--leave-out", f"leaves no recording to place for; recorded: {known}")
        )
    if problems:
        raise InstanceError(problems)
    left = np.isin(loads.names, names)
    return loads.chosen(~left), loads.chosen(left)


def judge_left_out(
    table: NDArray[np.int64],
    kept: ExpertLoads,
    left: ExpertLoads,
    options: PlaceOptions,
    begun: float,
) -> tuple[LeftOut, ...]:
    """The placement ``table [layers, slots]``, found for ``kept``, on every recording of ``left``.

    ``begun``: when the search for ``table`` did (``time.monotonic``); those for ``left`` share the time that it leaves.
    """
    theirs = _eplb(kept, options)
    found = []
    for index, name in enumerate(left.names):
        alone = left.chosen(np.arange(len(left.names)) == index)
        asked = replace(options, max_moves=None, max_bytes=None)
        own = place_alike(alone, asked.part_of_time(begun, len(left.names) - index))
        found.append(
            LeftOut(
                name,
                float(window_ratios(table, alone, options).mean()),
                None if theirs is None else float(window_ratios(theirs, alone, options).mean()),
                float(own.imbalance.mean()),
                float(own.bound.mean()),
            )
        )
    return tuple(found)


def _eplb(kept: ExpertLoads, options: PlaceOptions) -> NDArray[np.int64] | None:
    """EPLB's placement of the mean share of each expert; hierarchical where it would be."""
    if options.slots % options.gpus:
        return None
    mean = (kept.windows / kept.windows.sum(axis=2, keepdims=True)).mean(axis=0)
    nodes = options.gpus // (options.gpus_per_node or options.gpus)
    groups = options.groups if options.groups > 1 else 1
    return eplb(mean, options.slots, options.gpus, groups, nodes)
