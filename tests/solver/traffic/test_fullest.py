"""Searches for what carries most, where any layout that meets the targets will do."""

from __future__ import annotations

from solver.clock import Clock
from solver.traffic.asked import Asked
from solver.traffic.search import search_traffic
from tests.solver.traffic.few_draws import few_draws
from tests.solver.traffic.test_search import TARGETS, requests, scenario


def test_what_carries_most_is_found_at_the_first_try() -> None:
    """Where any layout will do, one that has all chips passes at once, and carries more than the cheapest."""
    asked = Asked(requests(), TARGETS)
    tried: list[str] = []
    with few_draws():
        least = search_traffic(scenario(), asked, clock=Clock(), gap=1e6)
        most = search_traffic(
            scenario(), asked, clock=Clock(), gap=1e6, fullest=True,
            on_progress=lambda now: tried.append(now.doing),
        )  # fmt: skip
    assert tried == ["1 layouts replayed"]
    assert most.evaluation.priced.requests_per_s > 1.5 * least.evaluation.priced.requests_per_s
    assert most.evaluation.chips_used > least.evaluation.chips_used
