"""A purchase under random arrivals: how many units meet the targets when requests come by chance at the peak.

Sizes are worked out for even arrivals, which have no bursts. A replay of Poisson arrivals has them, so a size with
little to spare may miss its targets there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.question.traffic.description import Arrivals, steady
from costmodel.question.traffic.requests import MOST_DRAWN, Requests
from costmodel.replay.fleet import Tables
from costmodel.replay.met import Met
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import BEYOND_P99, Targets, judged
from topology.errors import InstanceError, Problem, either, option
from topology.quantity import figure

#: how long requests come, as a multiple of what a request takes; the first such time is not judged: the fleet fills
_LENGTHS, _FILLS = 6, 1
#: the least that is left to judge, in the same unit, where more requests than that are not drawn
_LEAST = 2
#: draws that have to meet the targets
DRAWS = 2


@dataclass(frozen=True)
class PeakReplay:
    """What ``requests`` random requests met on ``units`` units: 99th percentiles in seconds, of the worse draw.

    ``requests`` are those judged: they come once the first could have ended. ``meets``: in every draw. A draw that
    misses is the last.
    """

    units: int
    requests: int
    ttft_p99_s: float
    tpot_p99_s: float
    meets: bool


def check_targets(instance: Instance) -> None:
    """Raise ``InstanceError`` where no target says what a replay has to meet."""
    if instance.slo.ttft is None and instance.slo.tpot is None:
        message = (
            f"needs a target that a replay may miss: give {either(option('ttft'), option('tpot'))}"
        )
        raise InstanceError(Problem(option("replay"), message))


def peak_replay(
    instance: Instance, layout: Layout, units: int, rate: float, seed: int
) -> PeakReplay:
    """Replay Poisson arrivals of ``rate`` requests per second, each of the workload's lengths, through a layout.

    The targets on means are judged as targets on 99th percentiles: no fewer requests may miss them.

    Raises
    ------
    InstanceError
        More than :data:`MOST_DRAWN` requests would have to come before enough could be judged.
    """
    targets = Targets(instance.slo.ttft, instance.slo.tpot)
    fills_s = takes_s(instance, layout)
    count = requests_at_peak(rate, fills_s)
    tables = Tables()
    judged_requests, first, tokens, meets = 0, 0.0, 0.0, True
    for draw in range(DRAWS):
        requests = at_peak(instance, rate, count, seed + draw)
        met = replay(instance, layout, requests, Course.of(instance), tables)
        met = once_filled(met, fills_s)
        judged_requests += len(met.arrival_s)
        first, tokens = max(first, p99(met.ttft)), max(tokens, p99(met.tpot))
        meets = judged(met, targets).meets
        if not meets:
            break
    return PeakReplay(units, judged_requests, first, tokens, meets)


def requests_at_peak(rate: float, fills_s: float) -> int:
    """Requests of a draw; ``fills_s``: what one may take. Raises ``InstanceError`` where they would be too many."""
    count = min(ceil(rate * _LENGTHS * fills_s), MOST_DRAWN)
    if count < rate * (_FILLS + _LEAST) * fills_s:
        message = (
            f"{figure(rate, 6)} requests/s of {fills_s:,.1f} s each: more than {MOST_DRAWN:,} requests would have to come; "
            "ask for a lower rate or shorter answers"
        )
        raise InstanceError(Problem(option("replay"), message))
    return count


def at_peak(instance: Instance, rate: float, count: int, seed: int) -> Requests:
    """Poisson arrivals, each of the workload's lengths."""
    return steady(instance.workload, Arrivals(process="poisson", rate=rate), count, seed)


def once_filled(met: Met, fills_s: float) -> Met:
    """With the times of the requests that are judged."""
    return met.of(met.arrival_s >= _FILLS * fills_s)


def p99(values: npt.NDArray[np.float64]) -> float:
    """The least value that 99 % of requests do not exceed: within a target where at most 1 % miss it."""
    return float(np.quantile(values, 1.0 - BEYOND_P99, method="inverted_cdf"))


def takes_s(instance: Instance, layout: Layout) -> float:
    """Seconds that a request may take: by the targets, and as priced where there is none."""
    priced = evaluate(instance, layout)
    assert priced.ttft_s is not None
    assert priced.tpot_s is not None
    first = priced.ttft_s if instance.slo.ttft is None else instance.slo.ttft
    tokens = priced.tpot_s if instance.slo.tpot is None else instance.slo.tpot
    return first + tokens * instance.workload.output_tokens


def fewest_that_meet(
    replayed: Callable[[int], PeakReplay | None], first: int, largest: int
) -> tuple[PeakReplay, ...]:
    """Replays from ``first`` units on until some meet, then of numbers between; the fewest that meet come last.

    Steps double, then halve: numbers between that are not replayed are taken to miss where a larger one does.
    ``None`` from ``replayed``: there is no time left. The last one misses where no number up to ``largest`` meets.
    """
    seen: list[PeakReplay] = []
    number, step, missed, best = first, 1, first - 1, None
    while best is None or best.units - missed > 1:
        found = replayed(number)
        if found is None:
            break
        seen.append(found)
        if found.meets:
            best = found
        else:
            missed = number
        if best is not None:
            number = (missed + best.units) // 2
        elif number >= largest:
            break
        else:
            number, step = min(number + step, largest), 2 * step
    return tuple(seen) if best is None else (*(one for one in seen if one is not best), best)
