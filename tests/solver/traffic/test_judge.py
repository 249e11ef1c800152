"""The order in which a layout is replayed, and what its replays say was too slow."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.layout.layout import Layout
from costmodel.replay.targets import Judged, Targets
from solver.traffic.asked import Asked, questions
from solver.traffic.judge import Judge, Verdict
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


@pytest.mark.parametrize(
    ("late", "slow", "waited", "missed"),
    [
        (0.02, 0.001, 0.0, ("prefill", "mixed")),
        (0.001, 0.02, 0.0, ("decode", "mixed")),
        # neither percentile is missed, but more than one in a hundred requests in all
        (0.004, 0.007, 0.0, ("decode", "mixed")),
        (0.007, 0.004, 0.0, ("prefill", "mixed")),
        (0.006, 0.006, 0.0, ("prefill", "decode", "mixed")),
        # most first tokens are late where their requests wait to decode
        (0.02, 0.001, 0.015, ("decode", "mixed")),
        (0.007, 0.004, 0.004, ("decode", "mixed")),
    ],
)
def test_what_missed_more_was_too_slow(
    late: float, slow: float, waited: float, missed: tuple[str, ...]
) -> None:
    run = Judged(late, slow, 1.0 - late - slow, Targets(1.0, 0.05, 0.99), waited)
    assert Verdict(None, (run,), 0).missed == missed
