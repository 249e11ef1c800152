r"""The RAGPulse day with another deployment in each hour, beside the published autoscaler.

``python -m benchmarks.ragpulse.hourly [--seed N]``. Each hour's requests are replayed alone on deployments of few to many GPUs. CP-SAT then
chooses one for every hour:

    y[h, d]          hour h is served by deployment d; sum_d y[h, d] = 1
    a, e[h, d]       d begins with hour h, has ended with it:  a[h] >= y[h] - y[h-1],  e[h] >= y[h-1] - y[h]
    GPU-seconds      sum g_d (3600 y[h, d] + load_d a[h, d] + finish[h-1, d] e[h, d])
    requests         sum covered[h, d] y[h, d] >= floor * all
    every hour       covered[h, d] >= half of the hour's requests, where y[h, d] = 1

Where an hour has another deployment than the one before, the whole new one loads before the hour begins, from flash and 60 s more, and the
whole old one finishes its requests after it, on GPUs of their own; hours repeat. Then the day is replayed: each stretch of hours with
one deployment as one replay, which begins empty and with cold caches, and must end within an hour after the stretch. What it covers in
each hour, and how long it finishes, take the place of what the hour alone said; where all stretches cover too little, the choice is
made again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from benchmarks.ragpulse.deployments import TPOT_S, TTFT_S, Counts, Deployments, chips_of, scenario
from benchmarks.ragpulse.floors import HOUR_S, Prices, Work
from benchmarks.ragpulse.run import MIXED_CHUNK, MOST_CHIPS, POOLS_CHUNK, WIDEST, said
from costmodel.evaluate import evaluate
from costmodel.question.traffic.load import load_traffic
from costmodel.question.traffic.requests import Requests
from costmodel.question.traffic.reuse import known_before
from solver.clock import one_worker
from solver.plan.groups import Start, start_s

#: AISimulate's autoscaler (examples/sweeper/nvopt-ragpulse, results of 2026-10-01): GPUs on average and coverage by floor
PUBLISHED = {0.90: (64.19, 0.9318), 0.95: (79.69, 0.9524), 0.99: (151.46, 0.9959)}
HOURS = 24
#: GPUs of decode pools, with those of the prefill pools beside each, and of mixed replicas
POOLS, MIXED = {6: (5, 6, 8, 9), 8: (8, 9, 10, 12, 14, 16)}, (6, 8)
#: share of an hour's requests that is covered at least
LEAST = 0.5
#: where weights are read from, and what a start takes beside it (assumed)
START = Start("flash", 60.0)
#: times that a floor's choice is made again
_AGAIN = 12

Table = NDArray[np.int64]


@dataclass(frozen=True)
class Times:
    """Seconds of a change: ``load[deployment]`` before it serves, ``finish[hour, deployment]`` after an hour that is its last."""

    load: Sequence[int]
    finish: Table

    def gpu_seconds(self, gpus: Sequence[int], plan: Sequence[int]) -> int:
        """Of a plan, with what loads and finishes."""
        total = 0
        for hour, now in enumerate(plan):
            total += gpus[now] * int(HOUR_S)
            before = plan[hour - 1]
            if before != now:
                total += gpus[now] * self.load[now]
                total += gpus[before] * int(self.finish[hour - 1, before])
        return total


def chosen(
    gpus: Sequence[int], covered: Table, needed: int, least: Sequence[int], times: Times
) -> list[int] | None:
    """The deployment of every hour with fewest GPU-seconds; ``covered[hour, deployment]`` requests, ``needed`` in all, ``least`` by hour."""
    model, hours = cp_model.CpModel(), len(covered)
    serve = [[model.new_bool_var("") for _ in gpus] for _ in range(hours)]
    terms: list[tuple[cp_model.IntVar, int]] = []
    for hour in range(hours):
        model.add_exactly_one(serve[hour])
        for d, own in enumerate(gpus):
            now, before = serve[hour][d], serve[hour - 1][d]
            begin, end = model.new_bool_var(""), model.new_bool_var("")
            model.add(begin >= now - before)
            model.add(end >= before - now)
            if covered[hour, d] < least[hour]:
                model.add(now == 0)
            terms += [
                (now, own * int(HOUR_S)),
                (begin, own * times.load[d]),
                (end, own * int(times.finish[hour - 1, d])),
            ]
    model.add(
        sum(int(covered[h, d]) * serve[h][d] for h in range(hours) for d in range(len(gpus))) >= needed
    )  # fmt: skip
    model.minimize(sum(seconds * one for one, seconds in terms))
    solver = one_worker()
    if solver.solve(model) != cp_model.OPTIMAL:
        return None
    return [next(d for d, one in enumerate(row) if solver.value(one)) for row in serve]


def fewest_gpu_hours(dropped: Table, allowed: int) -> int:
    """GPU-hours of any plan that keeps its GPUs for an hour: ``dropped[hour, gpus]`` requests at least, ``allowed`` in all."""
    hours, most = dropped.shape
    model = cp_model.CpModel()
    serve = [[model.new_bool_var("") for _ in range(most)] for _ in range(hours)]
    for row in serve:
        model.add_exactly_one(row)
    model.add(sum(int(dropped[h, c]) * serve[h][c] for h in range(hours) for c in range(most)) <= allowed)  # fmt: skip
    model.minimize(sum(c * serve[h][c] for h in range(hours) for c in range(most)))
    solver = one_worker()
    solver.parameters.max_deterministic_time = 10.0
    solver.solve(model)
    return max(0, int(np.ceil(solver.best_objective_bound - 1e-6)))


@dataclass(frozen=True)
class Stretch:
    """What hours on end meet on one deployment: requests of each that are covered, none where it has not finished all within an hour after.

    ``finish_s``: seconds until the last answer, from the end of the last hour on.
    """

    covered: Table
    finish_s: int


@dataclass
class Day:
    """The day's requests, deployments to choose from, and what hours and stretches of hours meet on them."""

    requests: Requests
    ways: list[tuple[Deployments, Counts]]
    stretches: dict[tuple[int, int, int], Stretch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hour = (self.requests.arrival_s // HOUR_S).astype(np.int64)
        self.gpus = [chips_of(counts) for _, counts in self.ways]
        self.least = np.ceil(LEAST * np.bincount(self.hour, minlength=HOURS)).astype(int).tolist()
        self.covered = np.zeros((HOURS, len(self.ways)), np.int64)
        self.in_stretch = np.zeros(self.covered.shape, bool)
        self.times = Times([self.load_s(d) for d in range(len(self.ways))], self.covered.copy())
        for hour in range(HOURS):
            for d in reversed(range(len(self.ways))):
                own = self.met(d, hour, hour + 1)
                (self.covered[hour, d],) = own.covered
                self.times.finish[hour, d] = own.finish_s
                # fewer GPUs are not tried, and count for nothing
                if self.covered[hour, d] < self.least[hour]:
                    break

    def load_s(self, way: int) -> int:
        """Seconds until a deployment's weights are read, and what a start takes beside it."""
        deployments, counts = self.ways[way]
        layout, instance = deployments.layout(counts), deployments.search.instance
        return ceil(start_s(instance, evaluate(instance, layout), layout, START))

    def met(self, way: int, begin: int, end: int) -> Stretch:
        """What the requests of the hours ``[begin, end)`` meet on a deployment that is empty at first; hours may pass the day's end."""
        key = way, begin, end
        if key not in self.stretches:
            rows = np.concatenate(
                [np.flatnonzero(self.hour == h % HOURS) for h in range(begin, end)]
            )
            deployments, counts = self.ways[way]
            own = self.requests.rows(rows)
            # the hours after midnight come a day later
            later = np.where(self.hour[rows] < begin, HOURS * HOUR_S, 0.0)
            own = replace(own, arrival_s=own.arrival_s + later)
            met = deployments.of(counts, own)
            good = (met.ttft <= TTFT_S) & (met.tpot <= TPOT_S)
            after = float(met.ends_s.max(initial=0.0)) - end * HOUR_S
            if after > HOUR_S:
                good[:] = False
            hour = (own.arrival_s // HOUR_S).astype(np.int64) - begin
            covered = np.bincount(hour[good], minlength=end - begin)
            self.stretches[key] = Stretch(covered, ceil(max(0.0, after)))
        return self.stretches[key]

    def plan(self, floor: float) -> tuple[list[int], Table] | None:
        """Deployments by hour, and the requests that their replays cover in each."""
        needed = int(np.ceil(floor * len(self.requests) - 1e-6))
        for _ in range(_AGAIN):
            found = chosen(self.gpus, self.covered, needed, self.least, self.times)
            if found is None:
                return None
            total = np.zeros(HOURS, np.int64)
            for way, begin, end in stretches(found):
                own, hours = self.met(way, begin, end), [h % HOURS for h in range(begin, end)]
                total[hours] = own.covered
                self._learn(way, hours, own)
            if (total >= self.least).all() and total.sum() >= needed:
                return found, total
        return None

    def _learn(self, way: int, hours: list[int], own: Stretch) -> None:
        """What a stretch covers takes the place of what its hours alone did, and of what other stretches covered where that is more."""
        known = np.where(self.in_stretch[hours, way], self.covered[hours, way], own.covered)
        self.covered[hours, way] = np.minimum(known, own.covered)
        self.in_stretch[hours, way] = True
        self.times.finish[hours[-1], way] = own.finish_s


def stretches(plan: Sequence[int]) -> list[tuple[int, int, int]]:
    """Deployment, first hour and end of every stretch of equal hours; the last one may pass the day's end."""
    number = len(plan)
    begins = [hour for hour in range(number) if plan[hour] != plan[hour - 1]]
    if not begins:
        return [(plan[0], 0, number)]
    ends = [*begins[1:], begins[0] + number]
    return [(plan[begin], begin, end) for begin, end in zip(begins, ends, strict=True)]


def ways(requests: Requests, known: float) -> list[tuple[Deployments, Counts]]:
    """Deployments from few GPUs to many."""
    pools = Deployments(scenario(requests, known, POOLS_CHUNK), requests)
    mixed = Deployments(scenario(requests, known, MIXED_CHUNK), requests)
    found = [
        *((mixed, mixed.strongest("mixed", chips, WIDEST)) for chips in MIXED),
        *((pools, (*one, *pools.strongest("decode", chips, WIDEST)))
          for chips, beside in POOLS.items() for more in beside if (one := pools.strongest("prefill", more, WIDEST))),
    ]  # fmt: skip
    return sorted(
        (way for way in found if way[1] and _stands(*way)), key=lambda way: chips_of(way[1])
    )


def _stands(deployments: Deployments, counts: Counts) -> bool:
    """Whether the nodes have room for a deployment's replicas."""
    try:
        deployments.layout(counts)
    except ValueError:
        return False
    return True


def main() -> None:
    """Print a plan and its bound for every floor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    requests = load_traffic("ragpulse-day", seed=words.seed)
    known = float(known_before(requests).sum() / requests.input_tokens.sum())
    work, prices = Work.of(requests), Prices.of(scenario(requests, known, POOLS_CHUNK), MOST_CHIPS)
    dropped = np.array([work.dropped(chips, prices, HOURS) for chips in range(MOST_CHIPS + 1)]).T
    day = Day(requests, ways(requests, known))
    for d, (deployments, counts) in enumerate(day.ways):
        print(f"{day.gpus[d]} GPUs: {said(deployments, counts)}, loads in {day.times.load[d]} s")
    numbers = np.bincount(day.hour, minlength=HOURS)
    for hour in range(HOURS):
        shares = " ".join(f"{own / numbers[hour]:6.1%}" for own in day.covered[hour])
        print(f"hour {hour:2}: {shares}")
    print(f"hours alone: {time.process_time():.0f} s of CPU", flush=True)
    for floor, (gpus, coverage) in PUBLISHED.items():
        bound = fewest_gpu_hours(dropped, int(np.floor((1 - floor) * len(requests) + 1e-6)))
        found = day.plan(floor)
        if found is None:
            print(f"{floor:.0%}: no plan of these deployments")
            continue
        plan, covered = found
        hours = day.times.gpu_seconds(day.gpus, plan) / HOUR_S
        print(
            f"{floor:.0%}: {hours:.1f} GPU-hours, {hours / HOURS:.1f} GPUs on average, {covered.sum() / len(requests):.2%} covered, "
            f"{(covered / numbers).min():.1%} in the worst hour; "
            f"by hour {[day.gpus[d] for d in plan]}; any plan takes at least {bound} GPU-hours; published autoscaler "
            f"{gpus} GPUs, {coverage:.2%}; {time.process_time():.0f} s of CPU so far",
            flush=True,
        )


if __name__ == "__main__":
    main()
