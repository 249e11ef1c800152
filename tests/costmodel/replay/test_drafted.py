"""Sequences that decode with drafts end after unlike numbers of rounds, as often as drafts are wrong by chance."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.speculation import Speculative
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Workload
from costmodel.replay.job import Job
from costmodel.replay.replay import Course, replay


def rounds_drawn(drafts: Speculative, tokens: int, count: int) -> np.ndarray:
    """Rounds until so many tokens are out, each draft drawn by itself."""
    rng = np.random.default_rng(0)
    right = rng.random((count, tokens, drafts.draft_tokens)) < np.array(drafts.accepted)
    gained = 1 + np.cumprod(right, axis=2).sum(axis=2)
    return 1 + np.argmax(np.cumsum(gained, axis=1) >= tokens, axis=1)


@pytest.mark.parametrize("tokens", [20, 300])
@pytest.mark.parametrize(
    "drafts",
    [
        Speculative(draft_tokens=1, acceptance=0.85),
        Speculative(draft_tokens=3, acceptance=(0.9, 0.7, 0.4)),
        Speculative(draft_tokens=5, acceptance=0.6),
    ],
)
def test_rounds_are_spread_as_drawn_drafts_spread_them(drafts: Speculative, tokens: int) -> None:
    expected = rounds_drawn(drafts, tokens, 4000)
    luck = np.random.default_rng(1).standard_normal(4000)
    jobs = [Job(0, 0.0, 1, tokens + 1, emitted=1, luck=float(one)) for one in luck]
    found = np.array([job.join(drafts.emitted, drafts.spread) for job in jobs])
    assert found.mean() == pytest.approx(expected.mean(), abs=0.6)
    assert found.std() == pytest.approx(expected.std(), rel=0.08)
    # without luck all take the rounds of the average
    (even,) = {Job(0, 0.0, 1, tokens + 1, emitted=1).join(drafts.emitted, drafts.spread)}
    assert even == -(-tokens // drafts.emitted)


def test_the_99th_percentile_feels_wrong_drafts() -> None:
    """Requests that all come alone: without luck each takes as long, and what they take on average stays."""
    instance = resolve_instance(
        Scenario(
            model="glm-4.5-air",
            cluster="hgx-h200",
            workload=Workload(input_tokens=500, output_tokens=200),
            speculative=Speculative(draft_tokens=3, acceptance=0.7),
        )
    )
    layout = plain_layout(instance, "mixed", tp=8, attention_dp=1, batch=4)
    count = 400
    requests = Requests(
        np.arange(count) * 60.0,
        np.full(count, 500),
        np.full(count, 200),
        np.zeros(count, dtype=int),
    )
    own, alike = (
        replay(instance, layout, requests, Course(alike=alike)) for alike in (False, True)
    )
    assert np.ptp(alike.tpot) < 1e-9
    drafts = instance.speculative
    assert drafts is not None
    expected = drafts.spread / np.sqrt(199 * drafts.emitted)
    assert np.std(own.tpot) / np.mean(own.tpot) == pytest.approx(expected, rel=0.1)
    assert own.tpot_s.mean == pytest.approx(alike.tpot_s.mean, rel=0.01)
    assert own.tpot_s.p99 > 1.05 * alike.tpot_s.p99
