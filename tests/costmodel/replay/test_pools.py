"""A replay needs replicas that take prompts and replicas that answer; mixed ones and pools share requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from costmodel.layout.layout import Layout, Role
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.engine import FirstTokenOf
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Workload
from costmodel.replay.fleet import Standing
from costmodel.replay.gaps import Gaps
from costmodel.replay.job import Habits, Job
from costmodel.replay.pass_table import Line, PassParts, PassTable
from costmodel.replay.replay import Course, replay, run
from costmodel.replay.router import Router
from costmodel.replay.server import Server
from tests.costmodel.replay.test_queues import NOTHING, by_rows
from topology.errors import InstanceError


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_layout_without_one_of_its_pools_is_refused(role: Role) -> None:
    workload = Workload(input_tokens=1000, output_tokens=200)
    asked = Scenario(model="llama-3.1-8b", cluster="nvl-2", workload=workload)
    instance = resolve_instance(asked)
    layout = plain_layout(instance, role, tp=1, batch=1)
    lengths = np.full(4, 1000), np.full(4, 200), np.zeros(4, dtype=np.int64)
    with pytest.raises(InstanceError, match="is missing"):
        replay(instance, layout, Requests(np.arange(4) / 10.0, *lengths))


def test_prefill_replicas_without_any_that_decode_leave_all_to_mixed_ones() -> None:
    workload = Workload(input_tokens=1000, output_tokens=200)
    asked = Scenario(model="llama-3.1-8b", cluster="nvl-2", workload=workload)
    instance = resolve_instance(asked)
    mixed = plain_layout(instance, "mixed", tp=1, batch=4)
    prefill = plain_layout(instance, "prefill", tp=1, batch=1, first_chip=1)
    both = Layout(replicas=(*mixed.replicas, *prefill.replicas))
    lengths = np.full(40, 1000), np.full(40, 200), np.zeros(40, dtype=np.int64)
    requests = Requests(np.arange(40) / 10.0, *lengths)
    alone, beside = (replay(instance, layout, requests) for layout in (mixed, both))
    assert beside.ttft.tolist() == alone.ttft.tolist()
    assert beside.tpot.tolist() == alone.tpot.tolist()


def test_a_mixed_replica_beside_pools_gets_requests_as_slots_are_taken(
    tiny: Callable[[int, int, int, int], Instance],
) -> None:
    """A prefill replica is quick and never full: what fills up is where its prompts decode."""
    roles: tuple[Role, ...] = ("prefill", "decode", "mixed")
    slots = {"prefill": 64, "decode": 8, "mixed": 8}
    table = by_rows(Line.flat(0.001))
    fleet = [
        Standing(
            Server(role, table, NOTHING, slots[role], Habits(chunk_tokens=64), Gaps()), 0, 64e3, 0.0
        )
        for role in roles
    ]
    # 12 of the 16 slots on average: 200 rounds of 1 ms each
    count, tokens = 2000, 200
    lengths = np.full(count, 64), np.full(count, tokens), np.zeros(count, dtype=np.int64)
    jobs = run(tiny(0, 1, 1, 0), fleet, Requests(np.arange(count) / 60.0, *lengths), Course())
    # either pool alone has too few slots: requests would wait for one before their first token
    assert max(job.first_s - job.arrival_s for job in jobs) < 0.1


@pytest.mark.parametrize(("habit", "first_s"), [("joins", 0.110), ("decodes", 0.115)])
def test_a_first_token_leaves_where_the_request_decodes(
    tiny: Callable[[int, int, int, int], Instance], habit: FirstTokenOf, first_s: float
) -> None:
    """A prompt is computed within 1 ms; its only slot is taken until 110 ms, each round lasts 5 ms.

    The server that decodes sends the first token on, or computes it: the wait for a slot is the first token's, not that of
    the three tokens of the answer.
    """
    habits = Habits(chunk_tokens=64, first_token=habit)
    gaps = Gaps()
    pools: tuple[tuple[Role, float, int], ...] = (("prefill", 0.001, 64), ("decode", 0.005, 1))
    fleet = [
        Standing(Server(role, by_rows(Line.flat(took)), NOTHING, slots, habits, gaps), 0, 64e3, 0.0)
        for role, took, slots in pools
    ]
    more = int(habit == "decodes")
    lengths = np.full(2, 64), np.array([22 - more, 3]), np.zeros(2, dtype=np.int64)
    before = replace(Course(), habits=habits)
    one, other = run(tiny(0, 1, 1, 0), fleet, Requests(np.array([0.004, 0.05]), *lengths), before)
    assert one.ends_s == pytest.approx(0.110)
    assert other.first_s == pytest.approx(first_s)
    assert (other.ends_s - other.first_s) / 2 == pytest.approx(0.005)
    assert gaps.count == lengths[1].sum() - 2


def _attending(slower: float) -> Standing:
    """A prefill replica: 10 µs a token, and for attention the square of a prompt's length, 10 s at 1,000 tokens."""
    lengths = np.arange(0.0, 1025.0, 64.0)
    rows = Line.through(lengths, lengths * 1e-5 * slower, 1024.0)
    attention = Line.through(lengths, lengths**2 * 1e-5 * slower, 1024.0)
    parts = PassParts(rows, NOTHING, NOTHING, NOTHING, NOTHING, attention, Line.flat(1.0), 1)
    habits = Habits(chunk_tokens=1024)
    table = PassTable(parts, parts, NOTHING, 1, 1)
    return Standing(Server("prefill", table, NOTHING, 1024, habits, Gaps()), 0, 1e5, 0.0)


def test_a_request_goes_where_least_time_is_waited_not_fewest_tokens() -> None:
    """One prompt of 1,000 tokens attends as long as 25 of 200 do."""
    pool = [_attending(1.0), _attending(1.0)]
    router = Router(pool, "least-loaded")
    sent = []
    for index, tokens in enumerate((1000, *[200] * 8)):
        job = Job(index, 0.0, tokens, 1)
        one = router.choose(job)
        one.server.add(job, 0.0)
        sent.append(pool.index(one))
    assert sent == [0, *[1] * 8]


def test_a_long_prompt_goes_to_the_replica_that_ends_it_first() -> None:
    """The slow replica is empty, but takes 20 s for what the quick one does in 10 s behind 1.6 s of others."""
    slow, quick = _attending(2.0), _attending(1.0)
    router = Router([slow, quick], "least-loaded")
    quick.server.add(Job(0, 0.0, 400, 1), 0.0)
    assert router.choose(Job(1, 0.0, 1000, 1)) is quick
    assert router.choose(Job(2, 0.0, 64, 1)) is slow
