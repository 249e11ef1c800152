"""Packing sets of chips ends when the clock does."""

from __future__ import annotations

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from solver.clock import Clock
from solver.place.pack import packed
from solver.rounds import Search


def test_nothing_is_placed_or_priced_after_the_clock_ended() -> None:
    scenario = Scenario(model="llama-3.1-8b", cluster="tpu-v6e-2x4", workload="chat", pay="used")
    search = Search(resolve_instance(scenario), Clock(None), 0.01, 0, None)
    assert not search.regular
    ends = search.placed, search.classes, search.question, search.bounds.per_rank, None
    search.clock.stop()
    packed(*ends, float("inf"))
    assert not search.placed.realised
