"""Whole units for requests in bursts: numbers on which no order is in time are proven too few, without a search."""

from __future__ import annotations

import numpy as np

from costmodel.question.scenario import Scenario
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Workload
from costmodel.replay.targets import Targets
from solver.clock import Clock
from solver.plan.sizing.for_traffic import TrafficUnits
from solver.plan.sizing.known import Known
from solver.traffic.asked import Asked

RATE = 15.0


def in_bursts(together: int, count: int = 2000) -> Requests:
    """So many requests at once, again and again."""
    rng = np.random.default_rng(5)
    return Requests(
        np.repeat(np.arange(count // together), together) + np.sort(rng.random(count)) * 1e-3 + 1.0,
        rng.integers(500, 3_000, count), rng.integers(5, 30, count), np.zeros(count, dtype=np.int64),
    ).at_rate(RATE)  # fmt: skip


def test_units_that_no_order_of_a_burst_leaves_in_time_are_proven_too_few() -> None:
    scenario = Scenario(
        model="llama-3.1-70b", cluster="hgx-h200", workload=Workload(input_tokens=800, output_tokens=17)
    )  # fmt: skip
    asked = Asked(in_bursts(80), Targets(1.5, 0.05, 0.99))
    units = TrafficUnits(scenario, "hgx-h200", Clock(), 0.01, 0, asked)
    one = units.carried(1)
    assert one.requests_per_s == 0.0
    assert 0.0 < one.most_requests_per_s < RATE
    assert not units.searches
    # in the long run one unit has room for them
    assert units.most(1) > RATE
    known = Known()
    known.add(1, one, RATE)
    assert known.few == 1
