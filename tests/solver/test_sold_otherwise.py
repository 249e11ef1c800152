"""Any chips on a torus: what slices serve is some of it, and the answer is never dearer than theirs."""

from __future__ import annotations

from typing import NoReturn

import pytest

from costmodel.evaluate import evaluate
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from solver import rounds
from solver.clock import Clock
from solver.rounds import Search
from solver.search import search
from topology.errors import InstanceError


@pytest.mark.parametrize(("cluster", "way"), [("trn2", "pair"), ("tpu-v5p-4x4x8", "slice")])
def test_any_chips_cost_no_more_than_slices_of_them(cluster: str, way: str) -> None:
    asked = {
        "model": "llama-3.1-70b",
        "cluster": cluster,
        "workload": "chat",
        "slo": {"tpot": 0.03},
    }
    sold = search(
        resolve_instance(Scenario.model_validate({**asked, "granularity": way})), clock=Clock(None)
    )
    instance = resolve_instance(Scenario.model_validate(asked))
    free = search(instance, clock=Clock(60), runner_up=True)
    cost, dearest = (one.evaluation.usd_per_m_output_tokens for one in (free, sold))
    assert cost is not None
    assert dearest is not None
    assert cost <= dearest * (1 + 1e-9)
    assert evaluate(instance, free.layout).feasible


def test_slices_are_not_looked_at_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"model": "llama-3.1-70b", "cluster": "trn2", "workload": "chat", "slo": {"tpot": 0.03}}
    clock = Clock(None)
    engine = Search(resolve_instance(Scenario.model_validate(asked)), clock, 0.01, 0, None)
    looked: list[str] = []

    def cluster_of(scenario: Scenario) -> NoReturn:
        looked.append(str(scenario.granularity))
        raise InstanceError([])

    monkeypatch.setattr(rounds, "cluster_of", cluster_of)
    clock.stop()
    engine._as_sold()
    assert not looked
