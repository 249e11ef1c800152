r"""The RAGPulse day with another deployment in each hour, beside the published autoscaler.

``python -m benchmarks.ragpulse.hourly [--seed N]``. Each hour's requests are replayed alone on deployments of few to many GPUs. CP-SAT then
chooses one for every hour:

    y[h, d]          hour h is served by deployment d; sum_d y[h, d] = 1
    a, e[h, d]       d begins with hour h, has ended with it:  a[h] >= y[h] - y[h-1],  e[h] >= y[h-1] - y[h]
    GPU-hours        sum g_d (y[h, d] + a[h+1, d] + e[h, d])
    requests         sum covered[h, d] y[h, d] >= floor * all

Where an hour has another deployment than the one before, the whole new one loads in the hour before and the whole old one
finishes in the hour after, on GPUs of their own, each paid for a whole hour; hours repeat. Then the day is replayed: each
stretch of hours with one deployment as one replay, which begins empty and with cold caches. Where that covers less than hours alone did,
the choice is made again with what the stretch covered.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from benchmarks.ragpulse.deployments import Counts, Deployments, chips_of, scenario
from benchmarks.ragpulse.floors import HOUR_S, Prices, Work
from benchmarks.ragpulse.run import MIXED_CHUNK, MOST_CHIPS, POOLS_CHUNK, WIDEST, said
from costmodel.question.traffic.load import load_traffic
from costmodel.question.traffic.requests import Requests
from costmodel.question.traffic.reuse import known_before
from solver.clock import one_worker

#: AISimulate's autoscaler (examples/sweeper/nvopt-ragpulse, results of 2026-10-01): GPUs on average and coverage by floor
PUBLISHED = {0.90: (64.19, 0.9318), 0.95: (79.69, 0.9524), 0.99: (151.46, 0.9959)}
HOURS = 24
#: GPUs of decode pools, with those of the prefill pools beside each, and of mixed replicas
POOLS, MIXED = {6: (5, 6, 8, 9), 8: (8, 9, 10, 12, 14, 16)}, (6, 8)
#: share of an hour's requests below which fewer GPUs are not tried in it
_LEAST = 0.8
#: times that a floor's choice is made again
_AGAIN = 12

Table = NDArray[np.int64]


def chosen(gpus: Sequence[int], covered: Table, needed: int) -> list[int] | None:
    """The deployment of every hour with fewest GPU-hours; ``covered[hour, deployment]`` requests, ``needed`` in all."""
    model, hours = cp_model.CpModel(), len(covered)
    serve = [[model.new_bool_var("") for _ in gpus] for _ in range(hours)]
    begin = [[model.new_bool_var("") for _ in gpus] for _ in range(hours)]
    end = [[model.new_bool_var("") for _ in gpus] for _ in range(hours)]
    for hour in range(hours):
        model.add_exactly_one(serve[hour])
        for d in range(len(gpus)):
            now, before = serve[hour][d], serve[hour - 1][d]
            model.add(begin[hour][d] >= now - before)
            model.add(end[hour][d] >= before - now)
    model.add(
        sum(int(covered[h, d]) * serve[h][d] for h in range(hours) for d in range(len(gpus))) >= needed
    )  # fmt: skip
    paid = (serve, begin, end)
    model.minimize(sum(gpus[d] * own[h][d] for own in paid for h in range(hours) for d in range(len(gpus))))  # fmt: skip
    solver = one_worker()
    if solver.solve(model) != cp_model.OPTIMAL:
        return None
    return [next(d for d, one in enumerate(row) if solver.value(one)) for row in serve]


def gpu_hours(gpus: Sequence[int], plan: Sequence[int]) -> int:
    """GPU-hours of a plan, with what loads and finishes."""
    total = 0
    for hour, now in enumerate(plan):
        before, after = plan[hour - 1], plan[(hour + 1) % len(plan)]
        total += gpus[now] + gpus[after] * (after != now) + gpus[before] * (before != now)
    return total


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


@dataclass
class Day:
    """The day's requests, deployments to choose from, and what hours and stretches of hours meet on them."""

    requests: Requests
    ways: list[tuple[Deployments, Counts]]
    covered: Table = field(init=False)
    stretches: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hour = (self.requests.arrival_s // HOUR_S).astype(np.int64)
        self.gpus = [chips_of(counts) for _, counts in self.ways]
        self.covered = np.zeros((HOURS, len(self.ways)), np.int64)
        for hour in range(HOURS):
            number = int((self.hour == hour).sum())
            for d in reversed(range(len(self.ways))):
                covered = self.met(d, hour, hour + 1)
                # what covers so little in an hour is not chosen there: it counts for nothing
                if covered < _LEAST * number:
                    break
                self.covered[hour, d] = covered

    def met(self, way: int, begin: int, end: int) -> int:
        """Requests of hours ``[begin, end)`` that a deployment covers, from empty; hours may pass the day's end."""
        key = way, begin, end
        if key not in self.stretches:
            rows = np.concatenate(
                [np.flatnonzero(self.hour == h % HOURS) for h in range(begin, end)]
            )
            deployments, counts = self.ways[way]
            own = self.requests.rows(rows)
            # the hours after midnight come a day later
            later = np.where(
                np.arange(len(rows)) < (self.hour[rows] >= begin).sum(), 0.0, HOURS * HOUR_S
            )
            own = replace(own, arrival_s=own.arrival_s + (later if end > HOURS else 0.0))
            goodput = deployments.of(counts, own).goodput
            assert goodput is not None
            self.stretches[key] = round(goodput * len(rows))
        return self.stretches[key]

    def plan(self, floor: float) -> tuple[list[int], int] | None:
        """Deployments by hour, and the requests that their replays cover."""
        needed = int(np.ceil(floor * len(self.requests) - 1e-6))
        covered = self.covered.copy()
        for _ in range(_AGAIN):
            found = chosen(self.gpus, covered, needed)
            if found is None:
                return None
            total = 0
            for way, begin, end in stretches(found):
                own = self.met(way, begin, end)
                total += own
                hours = [h % HOURS for h in range(begin, end)]
                told = int(covered[hours, way].sum())
                if (
                    own < told
                ):  # what an hour left behind spoils the next: spread the loss over them
                    share = own / told
                    covered[hours, way] = np.floor(covered[hours, way] * share).astype(np.int64)
            if total >= needed:
                return found, total
        return None


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
        print(f"{day.gpus[d]} GPUs: {said(deployments, counts)}")
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
        plan, total = found
        hours = gpu_hours(day.gpus, plan)
        print(
            f"{floor:.0%}: {hours} GPU-hours, {hours / HOURS:.1f} GPUs on average, {total / len(requests):.2%} covered; "
            f"by hour {[day.gpus[d] for d in plan]}; any plan takes at least {bound} GPU-hours; published autoscaler "
            f"{gpus} GPUs, {coverage:.2%}; {time.process_time():.0f} s of CPU so far",
            flush=True,
        )


if __name__ == "__main__":
    main()
