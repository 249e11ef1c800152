"""Experts dealt anew for one batch: layers whose fullest chip reads fewer experts, for a little more load.

A placement for loads alone leaves open how many experts each chip reads in a pass. Where few tokens are routed that sets the
time, and it is worth a busier chip; how much busier is tried, layer by layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from costmodel.experts.moe_load import touch_probability
from solver.experts.local.repartition import table_loads
from solver.experts.local.touched import descend_touched
from solver.experts.slots import Floats, Ints, Slots

#: how much busier than the placement's the busiest chip may be, one after the other
_BUSIER = (0.003, 0.02, 0.05, 0.1, 0.2, 0.4)
#: sweeps of the descent for each; as many experts as the fullest chip must read, up to this part, are few enough
_SWEEPS, _TOLERANCE = 20, 3e-3


def levelled(
    loads: Floats,
    top_k: float,
    tokens: float,
    rows: Ints,
    slots_per_chip: Sequence[int],
    fewest: Floats,
    seconds: Callable[[Ints], Floats],
    seed: int,
) -> Ints:
    """``rows [layers, slots]``, in each layer the quickest of those tried for a pass of ``tokens`` routed to ``top_k`` experts each.

    ``fewest [layers]``: experts that the fullest chip reads at least; ``seconds(rows) [layers]``. Every expert keeps its
    number of replicas.
    """
    slots, layers = Slots(tuple(slots_per_chip)), np.arange(len(rows))[:, None]
    replicas = np.zeros_like(loads)
    np.add.at(replicas, (layers, rows), 1)
    none = np.zeros((len(rows), 1))
    pieces = np.concatenate([loads / replicas, none], axis=1)
    touched = np.concatenate([touch_probability(loads, top_k, tokens, replicas), none], axis=1)
    table = np.full((len(rows), slots.num_chips, slots.width), loads.shape[1], dtype=np.int64)
    table[:, slots.mask()] = rows
    read = table_loads(touched, table)[1]
    fewest = np.maximum(fewest, read.mean(axis=1))
    if (read.max(axis=1) <= fewest * (1 + _TOLERANCE)).all():
        return rows
    busiest = table_loads(pieces, table)[1].max(axis=1)
    best, least_s = rows.copy(), seconds(rows)
    rng = np.random.default_rng(seed)
    for more in _BUSIER:
        table = descend_touched(
            table, pieces, touched, busiest * (1 + more), fewest, least=slots.least, sweeps=_SWEEPS,
            tolerance=_TOLERANCE, rng=rng,
        )  # fmt: skip
        dealt = table[:, slots.mask()]
        taken_s = seconds(dealt)
        better = taken_s < least_s
        if not better.any():
            break
        best[better], least_s[better] = dealt[better], taken_s[better]
    return best
