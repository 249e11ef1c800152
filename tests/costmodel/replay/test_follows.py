"""Requests that wait for answers: pauses are kept, and Little's law holds with the pauses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from costmodel.question.instance import Instance
from costmodel.question.traffic.follows import Follows
from costmodel.question.traffic.requests import Requests
from costmodel.replay.fleet import Standing
from costmodel.replay.gaps import Gaps
from costmodel.replay.job import Habits, Job
from costmodel.replay.pass_table import Line, PassParts, PassTable
from costmodel.replay.replay import Course, replay, run
from costmodel.replay.server import Server
from tests.costmodel.replay.test_reference import mixed_layout

NOTHING = Line.flat(0.0)
Tiny = Callable[[int, int, int, int], Instance]


def served(instance: Instance, service_s: float, follows: Follows) -> list[Job]:
    """Prompts of 64 tokens through one server, one after another."""
    parts = PassParts(
        Line.flat(service_s), NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, Line.flat(1.0), 1
    )
    table = PassTable(parts, parts, NOTHING, 1, 1)
    server = Server("mixed", table, NOTHING, 1, Habits(chunk_tokens=64), Gaps())
    count = len(follows.after)
    ones = np.ones(count, dtype=np.int64)
    requests = Requests(np.zeros(count), 64 * ones, ones, 0 * ones)
    return run(
        instance, [Standing(server, 0, 1.0, 0.0)], requests, Course(follows=follows), patience=None
    )


def lanes(many: int, each: int, pauses: np.ndarray) -> Follows:
    """Requests of lanes in turn; the first of each comes at once."""
    return Follows(np.concatenate([[-1] * many, np.arange(many * (each - 1))]), pauses)


def test_two_lanes_by_hand(tiny: Tiny) -> None:
    """Service 1 s, pauses 2 s: the second lane waits 1 s once, then they no longer meet."""
    jobs = served(tiny(0, 1, 1, 0), 1.0, lanes(2, 3, np.full(6, 2.0)))
    assert [job.arrival_s for job in jobs] == pytest.approx([0.0, 0.0, 3.0, 4.0, 6.0, 7.0])
    assert [job.ends_s for job in jobs] == pytest.approx([1.0, 2.0, 4.0, 5.0, 7.0, 8.0])


def test_a_slow_server_is_sent_less(tiny: Tiny) -> None:
    """``lanes = rate (time in the system + pause)``, whatever the load."""
    many, each = 8, 2_000
    pauses = np.random.default_rng(0).exponential(1.0, many * each)
    pauses[:many] = 0.0
    for service in (0.02, 0.1, 0.5):
        jobs = served(tiny(0, 1, 1, 0), service, lanes(many, each, pauses))
        inside = np.mean([job.ends_s - job.arrival_s for job in jobs])
        rate = len(jobs) / max(job.ends_s for job in jobs)
        assert rate * (inside + pauses.mean()) == pytest.approx(many, rel=0.02)
        assert rate <= 1.0 / service + 1e-9


def test_a_layout_is_replayed_with_pauses(tiny: Tiny) -> None:
    """On a priced layout each request comes its pause after the answer, none before its own time."""
    instance = tiny(0, 1, 1, 0)
    rng = np.random.default_rng(3)
    count = 200
    after = np.array([-1 if i < 4 else int(rng.integers(i - 4, i)) for i in range(count)])
    follows = Follows(after, rng.uniform(0.0, 0.5, count))
    ones = np.ones(count, dtype=np.int64)
    requests = Requests(np.zeros(count), 30 * ones, 5 * ones, 0 * ones)
    found = replay(instance, mixed_layout(instance, 1, 1, 4), requests, Course(follows=follows))
    waited = after >= 0
    due = found.ends_s[after[waited]] + follows.pause_s[waited]
    assert found.arrival_s[waited] == pytest.approx(due)
    assert found.stable
    assert follows.stretched(2.0).mean_pause_s == pytest.approx(2 * follows.mean_pause_s)
