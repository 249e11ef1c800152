r"""One placement for several workloads: recorded windows or scenarios of the same layers.

Minimises the weighted mean over windows (or the worst window) of the busiest chip's share, by
pairwise dealing on a potential that adds up over chips:

    sum over windows w and chips c of  p_w exp(beta (load_wc - peak_w)),   beta rising

A placement tuned to one workload is worth little on the next; this one is tuned to their spread.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike

from solver.experts.bounds.closed_form import load_bounds
from solver.experts.bounds.windows_bound import replica_bound
from solver.experts.packing import pack_largest_first
from solver.experts.place import finish
from solver.experts.replicas import greedy_replicas
from solver.experts.slots import Floats, Ints, Slots, check_loads, check_slots
from solver.experts.windows.pair_windows import pair_windows
from solver.experts.windows.window_search import WindowSearch
from topology.errors import InstanceError, Problem, VerificationError

Objective = Literal["mean", "worst"]
#: Sweeps by effort, and replica counts tried where chips are pairs.
SWEEPS = {"fast": 12, "good": 400, "best": 1600}
TRIALS = {"good": 60, "best": 200}
#: Layers swept together: their loads fit a processor's cache.
PART = 16
#: Windows x layers x experts up to which a second start is worth its time at any width.
SMALL = 8_000
#: Gap from which a layer's replica counts are bounded over all windows, and the effort for it.
WORTH_A_BOUND = 0.01
BOUND_EFFORT = {"good": 0.02, "best": 0.5}


@dataclass(frozen=True, slots=True)
class WindowPlacements:
    """One placement of every layer, judged under every window.

    ``max_load [windows, layers]``: busiest chip's share in each window. ``expected [layers]`` is
    the objective (weighted mean or worst of them) and ``bound [layers]`` proven for it.
    """

    physical_to_logical: Ints
    max_load: Floats
    expected: Floats
    bound: Floats
    slots_per_chip: tuple[int, ...]


def place_windows(
    windows: ArrayLike,
    slots_per_chip: Sequence[int],
    *,
    weights: Sequence[float] | None = None,
    objective: Objective = "mean",
    effort: str = "good",
    time_limit_s: float | None = None,
    seed: int = 0,
    workers: int = 1,
) -> WindowPlacements:
    """Place ``windows [windows, layers, experts]`` at once, on chips with ``slots_per_chip`` slots.

    Windows count in proportion to ``weights`` (equal by default), each scaled to the same total.
    The bound is the mean (or the largest) of the single windows' bounds, or that of the replica
    counts over all windows where it is higher. The result depends on ``seed``, not on ``workers``,
    unless the time limit cuts it short. Raises ``InstanceError``.
    """
    array = np.asarray(windows, dtype=np.float64)
    if array.ndim != 3 or 0 in array.shape:
        raise InstanceError(
            Problem("loads", f"expected [windows, layers, experts], got shape {array.shape}")
        )
    if objective not in ("mean", "worst") or effort not in SWEEPS:
        raise InstanceError(Problem("objective", f"unknown {objective!r} or effort {effort!r}"))
    shares = np.stack([check_loads(window) for window in array])
    weight = np.ones(len(shares)) if weights is None else np.asarray(weights, dtype=np.float64)
    if weight.shape != (len(shares),) or not (weight >= 0).all() or not weight.sum() > 0:
        raise InstanceError(Problem("weights", f"expected {len(shares)} weights, 0 or more"))
    weight = weight / weight.sum()
    slots = check_slots(slots_per_chip, shares.shape[2])
    deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
    bounds = np.stack([load_bounds(share, slots.num_chips, slots.total) for share in shares])
    used, worst = weight > 0, objective == "worst"
    bound = bounds[used].max(axis=0) if worst else weight @ bounds
    request = Request(shares[used], weight[used], worst, slots, bound)
    table = search(request, effort, seed=seed, workers=workers, deadline=deadline)
    judged = [
        finish(share, table, slots, bound) for share, bound in zip(shares, bounds, strict=True)
    ]
    max_load = np.stack([one.max_load for one in judged])
    expected = max_load[used].max(axis=0) if worst else weight @ max_load
    for layer in np.flatnonzero(expected > bound * (1 + WORTH_A_BOUND)):
        if effort == "fast" or (deadline is not None and time.monotonic() > deadline):
            break
        joint = replica_bound(
            shares[:, layer], weight, worst, slots.num_chips, slots.total, BOUND_EFFORT[effort]
        )
        bound[layer] = max(bound[layer], joint)
    if (bound > expected * (1 + 1e-9)).any():
        raise VerificationError("a placement is better than its proven bound")
    return WindowPlacements(
        judged[0].physical_to_logical, max_load, expected, np.minimum(bound, expected), slots.counts
    )


@dataclass(frozen=True, slots=True)
class Request:
    """Windows that count ``[windows, layers, experts]``, their weights, and what no placement is below."""

    shares: Floats
    weight: Floats
    worst: bool
    slots: Slots
    bound: Floats


def search(
    request: Request, effort: str, *, seed: int, workers: int, deadline: float | None
) -> Ints:
    """Slot tables ``[layers, chips, width]``: a few layers at a time, ``workers`` such parts at once."""
    shares, slots = request.shares, request.slots
    pairs = slots.width == 2 and slots.even and effort != "fast"
    starts: list[Ints] = []
    if pairs:
        starts.append(
            pair_windows(
                shares,
                request.weight,
                request.worst,
                slots.num_chips,
                request.bound,
                trials=TRIALS[effort],
                seed=seed,
                workers=workers,
                deadline=deadline,
            )
        )
    else:
        mean = np.tensordot(request.weight, shares, 1)
        for peak in summaries(shares, slots.width)[: 1 if effort == "fast" else None]:
            replicas = greedy_replicas(peak, slots.total, slots.num_chips)
            starts.append(pack_largest_first(mean, replicas, slots))
    sweeps = SWEEPS[effort] // 4 if pairs else SWEEPS[effort]

    def work(layers: Ints) -> Ints:
        part = replace(request, shares=shares[:, layers], bound=request.bound[layers])
        tables = [start[layers] for start in starts]
        return anneal_best(part, tables, sweeps, pairs, seed, deadline)

    layers = np.arange(shares.shape[1])
    parts = np.split(layers, layers[PART::PART])
    jobs = Parallel(n_jobs=max(workers, 1), backend="threading")
    return np.concatenate(jobs(delayed(work)(part) for part in parts))


def anneal_best(
    request: Request,
    starts: Sequence[Ints],
    sweeps: int,
    polish: bool,
    seed: int,
    deadline: float | None,
) -> Ints:
    """Per layer the best table of a descent from each of ``starts``, with the replicas that it has."""
    slots = request.slots
    best, value = starts[0].copy(), np.full(len(starts[0]), np.inf)
    for start in starts:
        counts = np.zeros((len(start), request.shares.shape[2] + 1), dtype=np.int64)
        np.add.at(counts, (np.arange(len(start))[:, None], start.reshape(len(start), -1)), 1)
        loads = WindowSearch(
            request.shares, request.weight, request.worst, counts[:, :-1], slots.num_chips
        )
        found, now = loads.anneal(
            start, sweeps, slots.least, seed, polish=polish, deadline=deadline
        )
        better = now < value
        best[better], value[better] = found[better], now[better]
    return best


def summaries(shares: Floats, width: int) -> list[Floats]:
    """Ways to sum up ``[windows, layers, experts]`` as one load per expert when replicas are chosen.

    With one or two slots per chip the largest pieces decide, so several are tried. With more there
    are replicas to spare for experts that vary, whose further change no window shows.
    """
    most, spread = shares.max(axis=0), shares.std(axis=0)
    if width > 2:
        return [most + spread, most][: 2 if shares.size <= SMALL else 1]
    return [most, shares.mean(axis=0) + spread]
