"""A replay needs replicas that take prompts and replicas that answer; mixed ones and pools share requests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from costmodel.layout.layout import Role
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Workload
from costmodel.replay.fleet import Standing
from costmodel.replay.gaps import Gaps
from costmodel.replay.job import Habits
from costmodel.replay.pass_table import Line
from costmodel.replay.replay import Course, replay, run
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
    # either pool alone has too few slots: requests would wait between their first token and the next
    tpot = [(job.ends_s - job.first_s) / (tokens - 1) for job in jobs]
    assert max(tpot) < 0.0015
