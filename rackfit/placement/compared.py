"""What knowing the experts that tokens use together saves in copies to other nodes.

The placement found is compared with EPLB's and with random ones of the same replicas, each judged
on the tokens held out from the search where single tokens were recorded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.coactivation import CoActivation, together_copies
from costmodel.experts.dispatch import imbalance
from rackfit.placement.placed import Compared, Judged
from solver.experts.eplb import eplb
from solver.experts.nodes.trade_off import loads_of
from solver.experts.request import PlaceOptions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Random placements whose mean is compared with.
DRAWS = 8


def compare(table: Ints, total: Floats, options: PlaceOptions, together: CoActivation) -> Compared:
    """The placement ``table [layers, slots]`` beside EPLB's and random ones."""
    theirs = eplb(total, options.slots, options.gpus)
    rng = np.random.default_rng(options.seed)
    draws = [judge(rng.permuted(theirs, axis=1), total, options, together) for _ in range(DRAWS)]
    return Compared(
        together.source,
        together.top_k,
        0 if together.picks is None else len(together.picks),
        0 if together.held_out is None else len(together.held_out),
        together.dropped,
        judge(table, total, options, together),
        judge(theirs, total, options, together),
        mean(draws),
    )


def judge(table: Ints, total: Floats, options: PlaceOptions, together: CoActivation) -> Judged:
    """Balance and copies of one placement."""
    per_node = options.gpus_per_node or options.gpus
    node = np.arange(options.slots) // (options.slots // options.gpus * per_node)
    balance = float(imbalance(loads_of(table, total, options)).mean())
    local_first = options.dispatch == "sglang-static"
    copies = together_copies(table, together, node, local_first=local_first)
    if together.held_out is None:
        least, most = float(copies.least.mean()), float(copies.most.mean())
        return Judged(balance, float(copies.value.mean()), None, least, most)
    later = together_copies(table, together, node, local_first=local_first, held_out=True)
    return Judged(balance, float(later.value.mean()), float(copies.value.mean()), None, None)


def mean(draws: list[Judged]) -> Judged:
    """The mean of several judged placements; one without a bound or a figure has none."""

    def over(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    return Judged(
        sum(draw.imbalance for draw in draws) / len(draws),
        sum(draw.copies for draw in draws) / len(draws),
        over([draw.searched for draw in draws]),
        over([draw.least for draw in draws]),
        over([draw.most for draw in draws]),
    )
