"""Any chips on a torus: what slices serve is some of it, and the answer is never dearer than theirs."""

from __future__ import annotations

from typing import NoReturn

import pytest

from costmodel.evaluate import evaluate
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from solver import rounds
from solver.answer import SearchResult
from solver.clock import Clock
from solver.place.placed_shapes import PlacedShapes
from solver.place.realise import Realised
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


@pytest.mark.parametrize("answered", [True, False])
def test_nothing_more_of_slices_is_placed_once_the_time_is_over(
    answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search without a layout works one out however late it is: of 20 s for a torus of two nodes it took 30. An answer
    that stands needs none from slices; without one they are worked out all the same."""
    asked = {"model": "llama-3.1-70b", "cluster": "trn2", "workload": "chat", "slo": {"tpot": 0.03}}
    clock = Clock(60.0)
    engine = Search(resolve_instance(Scenario.model_validate(asked)), clock, 0.01, 0, None)
    if answered:
        engine.place(sorted(engine.fleet(engine.items.best(), 2.0).fleet.shapes))  # type: ignore[union-attr]
        engine._improve()
        assert engine.layout is not None
    placed: list[int] = []
    whole, begin = PlacedShapes.place, Search.run

    def place(own: PlacedShapes, row: int, most_per_rank: int) -> Realised:
        placed.append(row)
        return whole(own, row, most_per_rank)

    def run(
        own: Search, enough_usd: float = float("inf"), *, brief: bool = False
    ) -> SearchResult | None:
        clock.stop()
        return begin(own, enough_usd, brief=brief)

    monkeypatch.setattr(PlacedShapes, "place", place)
    monkeypatch.setattr(Search, "run", run)
    before = engine.layout
    engine._as_sold()
    assert bool(placed) == (not answered)
    assert engine.layout is before if answered else engine.layout is not None
