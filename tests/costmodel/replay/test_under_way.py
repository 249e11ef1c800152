"""A fleet that is busy from the start: a short replay meets what a long one does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.layout.layout import Layout, Role
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.description import Arrivals, BothLengths, Description, Lengths
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Workload
from costmodel.replay.fleet import standing, under_way
from costmodel.replay.gaps import Gaps
from costmodel.replay.replay import Course, replay


@pytest.fixture(scope="module")
def instance() -> Instance:
    workload = Workload(input_tokens=500, output_tokens=1500)
    return resolve_instance(Scenario(model="llama-3.1-8b", cluster="hgx-h100", workload=workload))


def requests(count: int, rate: float, seed: int = 4) -> Requests:
    lengths = BothLengths(input=Lengths(mean=500, std=300), output=Lengths(mean=1500, std=700))
    return (
        Description(arrivals=Arrivals(rate=rate), lengths=lengths).draw(count, seed).at_rate(rate)
    )


def standing_alone(instance: Instance, *roles: tuple[Role, int]) -> Layout:
    """One replica a chip: its role and batch."""
    parts = [
        plain_layout(instance, role, tp=1, batch=batch, first_chip=place)
        for place, (role, batch) in enumerate(roles)
    ]
    return Layout(replicas=tuple(one for part in parts for one in part.replicas))


@pytest.mark.parametrize(
    ("roles", "rate"),
    [((("prefill", 4), ("decode", 192), ("decode", 96)), 7.0), ((("mixed", 192),), 4.0)],
)
def test_a_short_replay_meets_what_a_long_one_does(
    instance: Instance, roles: tuple[tuple[Role, int], ...], rate: float
) -> None:
    layout = standing_alone(instance, *roles)
    long = replay(instance, layout, requests(12_000, rate))
    settled = long.arrival_s > long.duration_s / 2
    assert long.stable
    course, found = Course.of(instance), {}
    for busy in (False, True):
        own = [
            replay(
                instance,
                layout,
                requests(600, rate, seed),
                replace(course, under_way=seed * busy or None),
            )
            for seed in range(1, 7)
        ]
        assert {len(one.ttft) for one in own} == {600}
        found[busy] = (
            np.mean([np.nanmean(one.tpot) for one in own]),
            np.mean([np.median(one.ttft) for one in own]),
        )
    tokens, first = np.nanmean(long.tpot[settled]), np.median(long.ttft[settled])
    assert found[True][0] == pytest.approx(tokens, rel=0.03)
    assert found[False][0] < 0.97 * found[True][0]
    assert found[True][1] == pytest.approx(first, rel=0.1)


def test_as_many_are_under_way_as_a_steady_state_has(instance: Instance) -> None:
    """Little's law: rate times the time that an answer takes; longer answers oftener, their parts out even."""
    layout = standing_alone(instance, ("prefill", 4), ("decode", 192))
    course, own = Course.of(instance), requests(20_000, 4.0)
    fleet = standing(instance, layout, course.habits, Gaps(), own.longest)
    ((one, jobs),) = under_way(fleet, own, 3)
    steps = own.output_tokens - 1.0
    context = (steps * (own.input_tokens + own.output_tokens / 2)).sum() / steps.sum()
    lasts = steps.mean() * one.server.table.round_s(len(jobs), float(context))
    assert len(jobs) == pytest.approx(4.0 * lasts, rel=4 / np.sqrt(len(jobs)))
    asked = np.array([job.output_tokens for job in jobs])
    longer = (steps * own.output_tokens).sum() / steps.sum()
    assert asked.mean() == pytest.approx(longer, rel=0.08)
    out = np.array([(job.emitted - 1) / (job.output_tokens - 1) for job in jobs])
    assert out.mean() == pytest.approx(0.5, abs=0.06)
    assert [job.index for job in jobs] == list(range(-1, -1 - len(jobs), -1))


def test_more_than_a_fleet_serves_fills_it(instance: Instance) -> None:
    layout = standing_alone(instance, ("prefill", 4), ("decode", 32))
    fleet = standing(instance, layout, Course.of(instance).habits, Gaps(), 4000)
    ((_, jobs),) = under_way(fleet, requests(2000, 500.0), 0)
    assert len(jobs) == 32
    one_token = replace(requests(10, 5.0), output_tokens=np.ones(10, dtype=np.int64))
    assert under_way(fleet, one_token, 0) == []
