"""The order in which a layout is replayed."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.layout.layout import Layout
from solver.traffic.asked import Asked, questions
from solver.traffic.judge import Judge
from tests.solver.traffic.test_search import TARGETS, fleet, requests, scenario


def test_what_is_left_after_a_loss_is_confirmed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what most likely fails: an answer that does is told so after one replay."""
    asked = Asked(requests(rate=10), TARGETS, spare="node")
    instance = questions(scenario("hgx-h100@2"), asked).spread
    judge, layout = Judge(instance, asked, seed=0), fleet(instance, ["mixed"] * 9)
    assert judge.judge(layout).meets
    tried: list[int] = []
    replayed = judge._replay

    def counted(own: Layout, *given: Any) -> Any:
        tried.append(len(own.replicas))
        return replayed(own, *given)

    monkeypatch.setattr(judge, "_replay", counted)
    judge.confirm(layout, lambda: False)
    assert tried[:2] == [1, 8]
    assert set(tried[2:]) == {9}
