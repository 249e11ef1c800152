r"""Two slots per chip, several windows: which replica shares a chip with which, by assignment.

With the replica counts fixed a chip is a pair of replicas, and the potential of ``windows`` adds up
over chips, so the best pairs are a matching. The larger half of the replicas is matched with the
smaller half by an exact assignment, again and again as the windows' peaks fall and the potential
sharpens. Every pair may change at once, where an exchange between two chips sees only their four.
"""

from __future__ import annotations

import time

import numpy as np
from ortools.graph.python import linear_sum_assignment

from solver.experts.slots import Floats, Ints

#: Sharpness of the potential (per mean chip load), one assignment at each.
SHARPNESS = (40.0, 120.0)
#: Costs are whole numbers for the assignment: units of a potential of 1, and the largest exponent.
UNIT, LARGEST = 100.0, 10.0
FORBIDDEN = 10**8


def pair_windows(
    table: Ints,
    shares: Floats,
    weight: Floats,
    worst: bool,
    replicas: Ints,
    deadline: float | None = None,
) -> None:
    """Pair anew, in place, ``table [layers, chips, 2]`` for ``shares [windows, layers, experts]``.

    ``replicas [layers, experts]`` add up to twice the chips. The busiest chip counts by ``weight``
    over windows, or in the ``worst`` of them. Layers left at ``deadline`` stay as they are.
    """
    used = weight > 0
    for layer in range(shares.shape[1]):
        if deadline is not None and time.monotonic() > deadline:
            break
        table[layer] = _pair_layer(shares[used, layer], weight[used], worst, replicas[layer])


def _pair_layer(share: Floats, weight: Floats, worst: bool, replicas: Ints) -> Ints:
    chips = int(replicas.sum()) // 2
    piece = share * chips / replicas
    order = np.argsort(-piece.max(axis=0), kind="stable")
    slots = np.repeat(order, replicas[order])
    large, small = slots[:chips], slots[chips:]
    load = piece[:, large, None] + piece[:, None, small]
    same = large[:, None] == small[None, :]
    start, end = (side.ravel() for side in np.indices((chips, chips)))
    peak = np.maximum(piece.max(axis=1) + piece.min(axis=1), 1.0)
    best, found = np.inf, small
    for sharpness in SHARPNESS:
        base = np.full_like(peak, peak.max()) if worst else peak
        power = np.minimum(sharpness * (load - base[:, None, None]), LARGEST)
        cost = np.rint(np.tensordot(weight, np.exp(power), 1) * UNIT).astype(np.int64)
        cost[same] = FORBIDDEN
        model = linear_sum_assignment.SimpleLinearSumAssignment()
        model.add_arcs_with_cost(start, end, cost.ravel())
        if model.solve() != model.OPTIMAL:
            raise AssertionError("an assignment of all replicas always exists")
        right = np.array([model.right_mate(row) for row in range(chips)])
        peak = load[:, np.arange(chips), right].max(axis=1)
        value = float(peak.max() if worst else weight @ peak)
        if value < best:
            best, found = value, small[right]
    return np.stack([large, found], axis=1)
