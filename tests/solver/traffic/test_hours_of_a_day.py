"""Hourly plans of the RAGPulse page: the choice is that of trying all, the bound is below it, stretches cover the day."""

from __future__ import annotations

import random
from itertools import product

import numpy as np

from benchmarks.ragpulse.floors import HOUR_S, Work, fewest
from benchmarks.ragpulse.hourly import chosen, fewest_gpu_hours, gpu_hours, stretches
from tests.solver.traffic.test_windows_of_a_day import prices, requests


def test_the_choice_is_that_of_trying_all_plans() -> None:
    planned = 0
    for seed in range(30):
        rng = random.Random(seed)
        hours, gpus = 5, sorted(rng.sample(range(2, 12), 3))
        covered = np.array([sorted(rng.randint(0, 10) for _ in gpus) for _ in range(hours)])
        needed = rng.randint(15, 45)
        ways = [
            gpu_hours(gpus, plan)
            for plan in product(range(3), repeat=hours)
            if sum(covered[h, d] for h, d in enumerate(plan)) >= needed
        ]
        found = chosen(gpus, covered, needed)
        if not ways:
            assert found is None
            continue
        planned += 1
        assert found is not None
        assert gpu_hours(gpus, found) == min(ways)
        assert sum(covered[h, d] for h, d in enumerate(found)) >= needed
    assert planned > 20


def test_a_change_is_paid_in_the_hour_before_and_the_hour_after() -> None:
    assert gpu_hours([5, 8], [0, 0, 0, 0]) == 20
    # 8 load in hour 0, 5 finish in hour 1; 5 load in hour 2, 8 finish in hour 3
    assert gpu_hours([5, 8], [0, 1, 1, 0]) == 5 + 8 + 8 + 5 + (8 + 5 + 5 + 8)
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
