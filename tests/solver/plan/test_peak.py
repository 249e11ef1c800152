"""Random arrivals at the peak: who is judged, what misses, and how the fewest units that meet are looked for."""

from __future__ import annotations

import pytest

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from solver.clock import Clock
from solver.plan.sizing.peak import PeakReplay, fewest_that_meet, peak_replay
from solver.search import search
from topology.errors import InstanceError

ASKED = {
    "model": "llama-3.1-8b", "cluster": "hgx-h100", "pay": "whole", "slo": {"ttft": 1.0, "tpot": 0.02},
    "workload": {"input_tokens": 1000, "output_tokens": 200},
}  # fmt: skip


def said(units: int, fewest: int) -> PeakReplay:
    return PeakReplay(units, 1, 0.0, 0.0, units >= fewest)


@pytest.mark.parametrize("fewest", [5, 6, 7, 9, 12, 30, 36])
def test_the_fewest_that_meet_come_last_and_one_fewer_was_seen_to_miss(fewest: int) -> None:
    seen = fewest_that_meet(lambda units: said(units, fewest), 5, 36)
    assert seen[-1] == said(fewest, fewest)
    assert fewest == 5 or said(fewest - 1, fewest) in seen
    assert len({one.units for one in seen}) == len(seen)


def test_where_no_number_meets_the_largest_is_said_to_miss() -> None:
    seen = fewest_that_meet(lambda units: said(units, 100), 5, 36)
    assert seen[-1].units == 36
    assert not seen[-1].meets


def test_without_time_the_least_that_met_so_far_comes_last() -> None:
    answers = iter([said(5, 10), said(6, 10), said(8, 10), said(12, 10), None])
    seen = fewest_that_meet(lambda _: next(answers), 5, 36)
    assert [one.units for one in seen] == [5, 6, 8, 12]
    assert fewest_that_meet(lambda _: None, 5, 36) == ()


def test_requests_are_judged_once_the_fleet_has_filled() -> None:
    instance = resolve_instance(Scenario.model_validate(ASKED))
    found = search(instance, clock=Clock(), gap=0.05)
    served = found.evaluation.requests_per_s
    assert served is not None
    light = peak_replay(instance, found.layout, 1, 0.5 * served, 0)
    # two draws of six times what a request may take by its targets, the first such time not judged
    takes_s = 1.0 + 0.02 * 200
    assert light.requests == pytest.approx(2 * 5 * takes_s * 0.5 * served, rel=0.1)
    assert light.meets
    heavy = peak_replay(instance, found.layout, 1, 2.0 * served, 0)
    assert not heavy.meets
    assert heavy.ttft_p99_s > 1.0 or heavy.tpot_p99_s > 0.02


def test_more_requests_than_are_drawn_are_refused() -> None:
    instance = resolve_instance(Scenario.model_validate(ASKED))
    layout = search(instance, clock=Clock(), gap=0.05).layout
    with pytest.raises(InstanceError, match="ask for a lower rate or shorter answers"):
        peak_replay(instance, layout, 1, 1e6, 0)
