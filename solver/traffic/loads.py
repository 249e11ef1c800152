r"""The load that a pool may carry and still meet a percentile, by queueing formulas: where a search starts.

Prompts that wait for one of a pool's replicas, all of which are busy, wait longer than ``w`` with probability
``exp(-2 (1 - u) w m / (I_a + c^2))`` in heavy traffic (Kingman), where ``m = rate / u`` is what the pool computes
per second, ``I_a`` the variance of arrivals over their mean in windows of ``w``, and ``c`` the coefficient of
variation of the work. Sequences that decode are as many as a pool without a queue has: their number is spread
around its mean ``N`` like a normal variable of variance ``I_a N``.
"""

from __future__ import annotations

from math import ceil, log, sqrt
from statistics import NormalDist

import numpy as np

from costmodel.question.traffic.requests import Requests
from costmodel.replay.targets import BEYOND_P99, Targets

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
        wait = max(targets.ttft_p99_s - ttft_s, 0.05 * targets.ttft_p99_s)
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
