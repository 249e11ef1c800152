"""Hourly plans of the RAGPulse page: the choice is that of trying all, the bound is below it, stretches cover the day."""

from __future__ import annotations

import random
from itertools import product
from typing import cast

import numpy as np

from benchmarks.ragpulse.deployments import Deployments
from benchmarks.ragpulse.floors import HOUR_S, Work, fewest
from benchmarks.ragpulse.hourly import (
    HOURS,
    Day,
    Stretch,
    Times,
    chosen,
    fewest_gpu_hours,
    stretches,
)
from costmodel.question.traffic.requests import Requests
from tests.solver.traffic.test_windows_of_a_day import prices, requests


def test_the_choice_is_that_of_trying_all_plans() -> None:
    planned = 0
    for seed in range(30):
        rng = random.Random(seed)
        hours, gpus = 5, sorted(rng.sample(range(2, 12), 3))
        covered = np.array([sorted(rng.randint(0, 10) for _ in gpus) for _ in range(hours)])
        needed, least = rng.randint(15, 45), [rng.randint(0, 3) for _ in range(hours)]
        finish = np.array([[rng.choice((5, 1000)) for _ in gpus] for _ in range(hours)])
        times = Times([rng.choice((100, 4000)) for _ in gpus], finish)
        ways = [
            times.gpu_seconds(gpus, plan)
            for plan in product(range(3), repeat=hours)
            if sum(covered[h, d] for h, d in enumerate(plan)) >= needed
            and all(covered[h, d] >= least[h] for h, d in enumerate(plan))
        ]
        found = chosen(gpus, covered, needed, least, times)
        if not ways:
            assert found is None
            continue
        planned += 1
        assert found is not None
        assert times.gpu_seconds(gpus, found) == min(ways)
        assert sum(covered[h, d] for h, d in enumerate(found)) >= needed
    assert planned > 20


def test_a_change_is_paid_as_long_as_it_takes() -> None:
    times = Times((60, 90), np.array([[1, 2], [3, 4], [5, 6], [7, 8]]))
    assert times.gpu_seconds([5, 8], [0, 0, 0, 0]) == 5 * 4 * 3600
    # 8 load before hour 1, 5 finish after hour 0; 5 load before hour 3, 8 finish after hour 2
    assert times.gpu_seconds([5, 8], [0, 1, 1, 0]) == 26 * 3600 + 8 * 90 + 5 * 1 + 5 * 60 + 8 * 6
    assert stretches([0, 1, 1, 0]) == [(1, 1, 3), (0, 3, 5)]
    assert stretches([1, 1]) == [(1, 0, 2)]


def test_the_bound_of_hours_is_what_each_hour_must_drop() -> None:
    dropped = np.array([[9, 5, 2, 0], [7, 1, 0, 0]])
    for allowed in range(17):
        least = min(a + b for a, b in product(range(4), repeat=2) if dropped[0, a] + dropped[1, b] <= allowed)  # fmt: skip
        assert fewest_gpu_hours(dropped, allowed) == least


def test_hours_drop_as_many_as_their_windows() -> None:
    found = requests(3)
    work, own = Work(found, found.input_tokens), prices()
    for chips in (0, 2, 3, 4, 6):
        (dropped,) = work.dropped(chips, own, 1)
        floor = 1.0 - dropped / len(found)
        # one hour holds all windows: so many may be missed and no fewer
        assert chips < 3 or fewest(work, own, floor, 64) <= chips
        if dropped:
            assert fewest(work, own, 1.0 - (dropped - 1) / len(found), 64) > chips
    assert found.arrival_s.max() < HOUR_S


class Known(Day):
    """Of ten requests an hour, four GPUs cover all; two cover nine in an hour alone, and one less in every later hour on end."""

    def met(self, way: int, begin: int, end: int) -> Stretch:
        return Stretch(
            np.array([10 if way else max(0, 9 - turn) for turn in range(end - begin)]), 7
        )

    def load_s(self, way: int) -> int:
        return 60


def test_what_hours_on_end_leave_behind_is_learned() -> None:
    count = 10 * HOURS
    ones = np.ones(count, np.int64)
    day = Known(
        Requests(np.arange(count) * HOUR_S / 10, ones, ones, 0 * ones),
        [(cast("Deployments", None), (("mixed", gpus, 1),)) for gpus in (2, 4)],
    )
    # alone, two GPUs cover 90 % in every hour; on end, too little after five
    found = day.plan(0.9)
    assert found is not None
    plan, covered = found
    assert covered.sum() >= 216
    assert covered.min() >= 5
    assert plan.count(0) < HOURS
    for way, begin, end in stretches(plan):
        assert (
            covered[[h % HOURS for h in range(begin, end)]].tolist()
            == day.met(way, begin, end).covered.tolist()
        )
    assert day.plan(1.0) is not None
    assert day.plan(0.99) is not None
