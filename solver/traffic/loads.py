r"""The load that a pool may carry and still meet a percentile, by queues of the requests or by formulas: where a search starts.

Prompts that wait for one of a pool's replicas, all of which are busy, wait longer than ``w`` with probability
``exp(-2 (1 - u) w m / (I_a + c^2))`` in heavy traffic (Kingman), where ``m = rate / u`` is what the pool computes
per second, ``I_a`` the variance of arrivals over their mean in windows of ``w``, and ``c`` the coefficient of
variation of the work. Sequences that decode are as many as a pool without a queue has: their number is spread
around its mean ``N`` like a normal variable of variance ``I_a N``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import ceil, inf, log, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from costmodel.question.traffic.requests import Requests
from costmodel.replay.targets import BEYOND_P99, Targets

Floats = NDArray[np.float64]

#: part of the target that is left to wait at least
_LEAST_WAIT = 0.05
#: halvings by which a load is found; the least load that is looked for
_HALVINGS, _LEAST_LOAD = 12, 1 / 64
#: the same where the shortest prompt is next, which takes longer to count
_FEWER = 7
#: windows over which a variance is taken, at least
_WINDOWS = 20

#: parts of the time that a prompt takes without a queue in the cheapest steady state
_HURRIES = (1.0, 0.6, 0.35, 0.2)


def hurries(targets: Targets, ttft_s: float) -> list[float]:
    """Parts of that time ``ttft_s`` to ask for: first the largest that leaves half of the target to wait, then others."""
    most_s = targets.ttft_p99_s
    if most_s is None:
        return [1.0]
    apt = next((one for one in _HURRIES if one * ttft_s <= most_s / 2), _HURRIES[-1])
    return [apt, *(one for one in _HURRIES if one != apt)]


def dispersion(requests: Requests, window_s: float) -> float:
    """Variance over mean of arrivals in windows of so many seconds (Poisson: 1); shorter windows in short traffic."""
    window = min(window_s, requests.duration_s / _WINDOWS)
    if window <= 0:
        return 1.0
    # few of many windows may have any: empty ones are counted, not listed, and what is left of one at the end is none
    number = ceil((requests.duration_s + window) / window) - 2
    places = np.floor(requests.arrival_s / window)
    counts = np.unique(places[places < number], return_counts=True)[1].astype(float)
    mean = float(counts.sum()) / number
    return max(1.0, float((counts**2).sum()) / number / mean - mean) if mean else 1.0


def carried(requests: Requests, targets: Targets, ttft_s: float) -> dict[str, float]:
    """Load by role, of 1, at the requests' own rate; ``ttft_s``: what a first token takes without a queue."""
    rate = requests.rate
    found = {"prefill": 1.0, "decode": 1.0, "mixed": 1.0}
    if targets.ttft_p99_s is not None:
        wait = max(targets.ttft_p99_s - ttft_s, _LEAST_WAIT * targets.ttft_p99_s)
        work = (requests.input_tokens - requests.cached_tokens).astype(float)
        varied = dispersion(requests, wait) + float(work.var() / work.mean() ** 2)
        found["prefill"] = 1.0 / (1.0 + log(1.0 / BEYOND_P99) * varied / (2.0 * rate * wait))
    if targets.tpot_p99_s is not None:
        lasts = float(requests.output_tokens.mean()) * targets.tpot_p99_s
        number = rate * lasts
        more = NormalDist().inv_cdf(1.0 - BEYOND_P99) * sqrt(dispersion(requests, lasts) / number)
        found["decode"] = 1.0 / (1.0 + more)
    found["mixed"] = min(found["prefill"], found["decode"])
    return found


def queued(
    runs: Sequence[Requests],
    prompt_s: Callable[[Requests], Floats],
    targets: Targets,
    ttft_s: float,
    *,
    shortest: bool = False,
) -> dict[str, float]:
    """The same by queues of each run, the least of all: prompts one after another, answers in as many slots as they need.

    ``prompt_s``: seconds that each prompt holds one replica. ``shortest``: the shortest prompt that waits is next. Capacities are those at the mean of the first of the runs. The
    time that ``ttft_s`` leaves may pass before a prompt, and as much before an answer has a slot: a start that is rather low.
    """
    first = runs[0]
    found = {"prefill": 1.0, "decode": 1.0}
    most_s = inf if targets.ttft_p99_s is None else targets.ttft_p99_s
    replicas = first.rate * float(prompt_s(first).mean())
    wait, halvings = (_shortest_first, _FEWER) if shortest else (_first_come, _HALVINGS)
    slots = first.rate * float(first.output_tokens.mean()) * (targets.tpot_p99_s or 0.0)
    for requests in runs:
        if targets.ttft_p99_s is not None:
            wait_s = max(most_s - ttft_s, _LEAST_WAIT * most_s)
            each_s = prompt_s(requests) / replicas
            found["prefill"] = _most(
                wait, requests.arrival_s, each_s, wait_s, found["prefill"], halvings
            )
        if targets.tpot_p99_s is not None:
            lasts_s = requests.output_tokens * targets.tpot_p99_s
            gone = np.searchsorted(np.sort(requests.arrival_s + lasts_s), requests.arrival_s)
            under_way = np.quantile(np.arange(1, len(gone) + 1) - gone, 1.0 - BEYOND_P99)
            waiting = max(most_s - ttft_s, 0.0) / float(lasts_s.mean())
            found["decode"] = min(found["decode"], slots * (1.0 + waiting) / float(under_way))
    return {**found, "mixed": min(found.values())}


def _most(
    wait: Callable[[Floats, Floats], Floats],
    arrival_s: Floats,
    each_s: Floats,
    most_s: float,
    most: float,
    halvings: int,
) -> float:
    """The largest load of a queue, at most ``most``, at which one request in a hundred waits longer; at least :data:`_LEAST_LOAD`."""

    def late(load: float) -> bool:
        return float((wait(arrival_s, load * each_s) > most_s).mean()) > BEYOND_P99

    if not late(most):
        return most
    low, high = most / 2, most
    while low > _LEAST_LOAD and late(low):  # few requests, or bursts of them
        low, high = low / 2, low
    for _ in range(halvings):
        load = (low + high) / 2
        low, high = (low, load) if late(load) else (load, high)
    return low


def _first_come(arrival_s: Floats, each_s: Floats) -> Floats:
    """Seconds that each request of a queue waits; ``arrival_s`` ascends, ``each_s`` is served."""
    behind = np.concatenate(([0.0], np.cumsum(each_s)[:-1])) - arrival_s
    return np.asarray(behind - np.minimum.accumulate(behind))


def _shortest_first(arrival_s: Floats, each_s: Floats) -> Floats:
    """The same where the shortest that waits is next."""
    comes, takes = arrival_s.tolist(), each_s.tolist()
    waits, free = np.zeros(len(comes)), 0.0
    waiting: list[tuple[float, int]] = []
    upcoming = 0
    while waiting or upcoming < len(comes):
        if not waiting:
            free = max(free, comes[upcoming])
        while upcoming < len(comes) and comes[upcoming] <= free:
            heappush(waiting, (takes[upcoming], upcoming))
            upcoming += 1
        took, at = heappop(waiting)
        waits[at] = free - comes[at]
        free += took
    return waits
