r"""Two slots per chip, several windows: which replicas there are, and which two share a chip.

With the replica counts fixed a chip is a pair of replicas, and the potential of ``windows`` adds up
over chips, so the best pairs are a matching: the larger half of the replicas is matched with the
smaller half by an exact assignment. Every pair may change at once, where an exchange between two
chips sees only their four.

The counts follow from the windows' peaks: an expert needs replicas where its load is large *against
the busiest chip of that window*, so counts spread by ``max over w of share_we / scale_w`` are tried for scales
near the peaks of the best pairs so far, which they then replace.
"""

from __future__ import annotations

import time

import numpy as np
from joblib import Parallel, delayed
from ortools.graph.python import linear_sum_assignment

from solver.experts.replicas import greedy_replicas
from solver.experts.slots import Floats, Ints

#: Sharpness of the potential (per mean chip load): first assignment, and the one that follows.
SHARPNESS = (40.0, 120.0)
#: Costs are whole numbers for the assignment: units of a potential of 1, and the largest exponent.
UNIT, LARGEST = 50.0, 6.0
#: Trials at the best pairs' own scales; then scales drawn around them (standard deviation of the
#: logarithm), and the weight of an expert's spread over the windows, in turns.
SETTLE, DRAWN, SPREAD = 2, (0.15, 0.08, 0.04, 0.02), (0.0, 0.2, 0.5)
#: Second assignments are for counts whose first is this near the best first.
NEAR = 1.01
#: Gap to the bound at which a layer is left alone.
CLOSE = 1e-3


def pair_windows(
    shares: Floats,
    weight: Floats,
    worst: bool,
    chips: int,
    bound: Floats,
    *,
    trials: int,
    seed: int,
    workers: int = 1,
    deadline: float | None = None,
) -> Ints:
    """Pairs ``[layers, chips, 2]`` for ``shares [windows, layers, experts]`` and replica counts of its own.

    The busiest chip counts by ``weight`` over windows, or in the ``worst`` of them; ``bound [layers]`` is what no
    placement is below, as a share. ``workers`` layers are worked on at once, which changes
    nothing in the result; at ``deadline`` each layer stays at its first trial or what it has.
    """

    def work(layer: int) -> Ints:
        rng = np.random.default_rng([seed, layer])
        goal = float(bound[layer]) * chips * (1 + CLOSE)
        return search_layer(shares[:, layer], weight, worst, chips, goal, trials, rng, deadline)

    jobs = Parallel(n_jobs=max(workers, 1), backend="threading")
    return np.stack(jobs(delayed(work)(layer) for layer in range(shares.shape[1])))


def search_layer(
    share: Floats,
    weight: Floats,
    worst: bool,
    chips: int,
    goal: float,
    trials: int,
    rng: np.random.Generator,
    deadline: float | None,
) -> Ints:
    """The best pairs ``[chips, 2]`` of up to ``trials`` replica counts for ``share [windows, experts]``.

    A window's largest replica shares its chip with no less than the smallest: counts for which that alone
    is too much are passed over.
    """
    scale = np.ones(len(share))
    value = nearest = np.inf
    best, known = np.empty(0, dtype=np.int64), set[bytes]()
    for trial in range(trials):
        if value <= goal or (trial and deadline is not None and time.monotonic() > deadline):
            break
        drawn = DRAWN[trial % len(DRAWN)] if trial > SETTLE else 0.0
        tried = scale * np.exp(rng.normal(0.0, drawn, len(scale)))
        scaled = share / tried[:, None]
        extra = SPREAD[trial % len(SPREAD)] if trial > SETTLE else 0.0
        peak = scaled.max(axis=0) + extra * scaled.std(axis=0)
        replicas = greedy_replicas(peak[None], 2 * chips, chips)[0]
        piece = share * chips / replicas
        base = np.maximum(piece.max(axis=1) + piece.min(axis=1), 1.0)
        least = float(base.max() if worst else weight @ base)
        if least >= value or replicas.tobytes() in known:
            continue
        known.add(replicas.tobytes())
        first = True
        for sharpness in SHARPNESS:
            table = matched(piece, replicas, weight, worst, base, sharpness)
            base = piece[:, table].sum(axis=2).max(axis=1)
            now = float(base.max() if worst else weight @ base)
            if now < value:
                value, best, scale = now, table, tried if worst else base / base.mean()
            if first and now > nearest * NEAR:
                break
            nearest, first = min(nearest, now) if first else nearest, False
    return best


def matched(
    piece: Floats, replicas: Ints, weight: Floats, worst: bool, base: Floats, sharpness: float
) -> Ints:
    """Pairs ``[chips, 2]`` of the larger half of the replicas with the smaller, least in potential.

    ``piece [windows, experts]``: load of one replica in mean chips; ``base [windows]``: the load at which
    the potential is 1.
    """
    chips = int(replicas.sum()) // 2
    order = np.argsort(-piece.max(axis=0), kind="stable")
    slots = np.repeat(order, replicas[order])
    large, small = slots[:chips], slots[chips:]
    base = np.full_like(base, base.max()) if worst else base
    cost = np.zeros((chips, chips), dtype=np.float32)
    for window, share in enumerate(piece.astype(np.float32)):
        left = share[large] - np.float32(base[window])
        power = np.float32(sharpness) * (left[:, None] + share[small])
        cost += np.float32(weight[window]) * np.exp(np.minimum(power, np.float32(LARGEST)))
    whole = np.rint(cost * np.float32(UNIT)).astype(np.int64)
    whole[large[:, None] == small[None, :]] = chips * (int(UNIT * np.exp(LARGEST)) + 1)
    start, end = (side.ravel() for side in np.indices((chips, chips)))
    model = linear_sum_assignment.SimpleLinearSumAssignment()
    model.add_arcs_with_cost(start, end, whole.ravel())
    if model.solve() != model.OPTIMAL:
        raise AssertionError("an assignment of all replicas always exists")
    right = np.array([model.right_mate(row) for row in range(chips)])
    return np.stack([large, small[right]], axis=1)
