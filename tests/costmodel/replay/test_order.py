"""The shortest prompt first: held back before the replicas, as long as each has two passes of prompts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from costmodel.question.instance import Instance
from costmodel.question.traffic.requests import Requests
from costmodel.replay.fleet import Standing
from costmodel.replay.gaps import Gaps
from costmodel.replay.job import Habits, Job
from costmodel.replay.prefix_cache import Prefixes
from costmodel.replay.replay import Course, run
from costmodel.replay.server import Server
from tests.costmodel.replay.test_queues import NOTHING, Line, by_rows, prompts, waits

CHUNK, PASS_S = 64, 0.01
Tiny = Callable[[int, int, int, int], Instance]


def servers(number: int) -> list[Standing]:
    table = by_rows(Line.flat(PASS_S))
    made = (
        Server("mixed", table, NOTHING, 64, Habits(chunk_tokens=CHUNK), Gaps())
        for _ in range(number)
    )
    return [Standing(one, 0, 1.0, 0.0) for one in made]


def ran(instance: Instance, requests: Requests, number: int = 1) -> list[Job]:
    return run(instance, servers(number), requests, Course(order="shortest"))


def plainly(arrival_s: list[float], passes: list[int]) -> list[float]:
    """When the first pass of each prompt of whole passes starts on one server, by a walk over passes."""
    held, sent = list[tuple[int, int]](), list[list[int]]()
    starts, now = [-1.0] * len(passes), 0.0
    coming = list(range(len(passes)))

    def send_on() -> None:
        while held and sum(left for _, left in sent) < 2:
            held.sort()
            left, at = held.pop(0)
            sent.append([at, left])

    while coming or held or sent:
        if not sent:
            now = max(now, arrival_s[coming[0]])
            held.append((passes[coming[0]], coming.pop(0)))
            send_on()
        at = sent[0][0]
        starts[at] = now if starts[at] < 0 else starts[at]
        now += PASS_S
        while coming and arrival_s[coming[0]] < now:
            held.append((passes[coming[0]], coming.pop(0)))
            send_on()
        sent[0][1] -= 1
        sent[:] = [one for one in sent if one[1]]
        send_on()
    return starts


@pytest.mark.parametrize("seed", range(3))
def test_each_prompt_starts_when_a_walk_over_passes_says(seed: int, tiny: Tiny) -> None:
    rng = np.random.default_rng(seed)
    passes = rng.integers(1, 9, 600)
    arrival = np.cumsum(rng.exponential(PASS_S * 4.5 / 0.95, 600))
    jobs = ran(tiny(0, 1, 1, 0), prompts(arrival, CHUNK * passes))
    starts = plainly(arrival.tolist(), passes.tolist())
    assert [job.started_s for job in jobs] == pytest.approx(starts, abs=1e-9)


def test_short_prompts_wait_less_and_long_ones_more(tiny: Tiny) -> None:
    """As many passes are run in all: none is idle while a prompt waits."""
    rng = np.random.default_rng(4)
    passes = rng.integers(1, 9, 4000)
    arrival = np.cumsum(rng.exponential(PASS_S * 4.5 / 3 / 0.95, 4000))
    requests = prompts(arrival, CHUNK * passes)
    first = run(tiny(0, 1, 1, 0), servers(3), requests, Course())
    shortest = ran(tiny(0, 1, 1, 0), requests, 3)
    long = passes == 8
    assert waits(shortest).mean() < 0.75 * waits(first).mean()
    assert waits(shortest)[~long].mean() < 0.6 * waits(first)[~long].mean()
    assert waits(shortest)[long].mean() > waits(first)[long].mean()
    ends = [max(job.ends_s for job in jobs) for jobs in (first, shortest)]
    assert ends[1] == pytest.approx(ends[0], rel=0.01)
    assert all(job.done == job.input_tokens for job in shortest)


def test_where_nothing_waits_the_order_is_none(tiny: Tiny) -> None:
    requests = prompts(np.arange(50) * 1.0, np.full(50, 3 * CHUNK))
    for course in (Course(), Course(order="shortest")):
        assert waits(run(tiny(0, 1, 1, 0), servers(2), requests, course)) == pytest.approx(0.0)


def test_what_is_known_of_a_prompt_does_not_count(tiny: Tiny) -> None:
    """Of three that wait behind another, the longest needs the fewest passes: it came with a prefix."""
    tokens = CHUNK * np.array([2, 2, 4, 6])
    requests = prompts(np.array([0.0, 0.0, 0.001, 0.002]), tokens)
    told = Requests(
        requests.arrival_s, requests.input_tokens, requests.output_tokens,
        np.array([0, 0, 0, 5 * CHUNK]),
    )  # fmt: skip
    assert [job.started_s for job in ran(tiny(0, 1, 1, 0), requests)][2:] == pytest.approx(
        [4 * PASS_S, 8 * PASS_S]
    )
    assert [job.started_s for job in ran(tiny(0, 1, 1, 0), told)][2:] == pytest.approx(
        [5 * PASS_S, 2 * PASS_S]
    )


def test_a_prefix_that_some_replica_has_does_not_count(tiny: Tiny) -> None:
    blocks = [(1, 2), (3, 4), (5, 6, 7, 8), (1, 2, 9, 10, 11)]
    counts = [len(one) for one in blocks]
    sizes = [(CHUNK,) * count for count in counts]
    given = np.array(counts) * CHUNK
    ones = np.ones(4, dtype=np.int64)
    requests = Requests(
        np.array([0.0, 0.0, 0.021, 0.022]), given, ones, 0 * ones, blocks=blocks, block_sizes=sizes
    )
    fleet = servers(1)
    jobs = run(tiny(0, 1, 1, 0), fleet, requests, Course(order="shortest"))
    assert isinstance(fleet[0].server.cache, Prefixes)
    # three new blocks of the last go before the four of the third
    assert [job.hit_tokens for job in jobs] == [0, 0, 0, 2 * CHUNK]
    assert jobs[3].started_s < jobs[2].started_s


def test_a_closed_loop_begins_the_next_request_when_one_ends(tiny: Tiny) -> None:
    requests = prompts(np.zeros(40), CHUNK * np.tile([1, 7], 20))
    jobs = run(tiny(0, 1, 1, 0), servers(1), requests, Course(order="shortest", in_flight=6))
    assert all(job.ends_s > 0 for job in jobs)
    assert max(job.ends_s for job in jobs) == pytest.approx(20 * 8 * PASS_S)
