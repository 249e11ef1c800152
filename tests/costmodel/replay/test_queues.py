"""Queues whose waits are known in closed form, and what must hold of every replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from costmodel.question.instance import Instance
from costmodel.question.profile_parts import HostTime
from costmodel.question.traffic.requests import Requests
from costmodel.replay.fleet import Standing, standing
from costmodel.replay.gaps import Gaps
from costmodel.replay.job import Habits, Job
from costmodel.replay.pass_table import Line, PassParts, PassTable
from costmodel.replay.replay import Course, replay, run
from costmodel.replay.server import Server
from tests.costmodel.replay.test_reference import mixed_layout

NOTHING = Line.flat(0.0)


def by_rows(line: Line) -> PassTable:
    """Passes that last by their tokens alone."""
    parts = PassParts(line, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, Line.flat(1.0), 1)
    return PassTable(parts, parts, NOTHING, 1, 1)


def queue(instance: Instance, line: Line, requests: Requests) -> list[Job]:
    """Prompts through one server, one after another."""
    server = Server("mixed", by_rows(line), NOTHING, 1, Habits(chunk_tokens=64), Gaps())
    return run(instance, [Standing(server, 0, 1.0, 0.0)], requests, Course())


def prompts(arrival: np.ndarray, tokens: np.ndarray) -> Requests:
    ones = np.ones(len(arrival), dtype=np.int64)
    return Requests(arrival, tokens.astype(np.int64), ones, 0 * ones)


def waits(jobs: list[Job]) -> np.ndarray:
    return np.array([job.started_s - job.arrival_s for job in jobs])


def test_m_d_1(tiny: Callable[[int, int, int, int], Instance]) -> None:
    """Mean wait ``load D / 2 (1 - load)`` (Pollaczek and Khinchine)."""
    rng = np.random.default_rng(1)
    count, service, load = 100_000, 0.01, 0.5
    gaps = rng.permutation(-np.log1p(-(np.arange(count) + 0.5) / count)) * service / load
    requests = prompts(np.cumsum(gaps), np.full(count, 64))
    found = waits(queue(tiny(0, 1, 1, 0), Line.flat(service), requests))
    assert found.mean() == pytest.approx(load * service / (2 * (1 - load)), rel=0.01)


def test_the_server_holds_a_prompt_before_the_queue(
    tiny: Callable[[int, int, int, int], Instance],
) -> None:
    """Longer prompts stay longer there: a short one that came later goes first."""
    host = HostTime(request_s=0.010, prompt_token_s=0.001)
    server = Server("mixed", by_rows(Line.flat(0.005)), NOTHING, 1, Habits(chunk_tokens=64), Gaps())
    requests = prompts(np.array([0.0, 0.020]), np.array([60, 10]))
    jobs = run(tiny(0, 1, 1, 0), [Standing(server, 0, 1.0, 0.0)], requests, Course(host=host))
    assert [job.index for job in jobs] == [0, 1]
    assert waits(jobs) == pytest.approx([0.070, 0.020])
    later = Server("mixed", by_rows(Line.flat(0.005)), NOTHING, 1, Habits(chunk_tokens=64), Gaps())
    course = Course(host=host, in_flight=1)
    one_by_one = run(tiny(0, 1, 1, 0), [Standing(later, 0, 1.0, 0.0)], requests, course)
    assert waits(one_by_one) == pytest.approx([0.070, 0.020])
    assert one_by_one[1].arrival_s == pytest.approx(0.075)


def test_every_wait_follows_lindley(tiny: Callable[[int, int, int, int], Instance]) -> None:
    """With prompts of unlike lengths: the next one waits ``max(0, wait + service - gap)``."""
    rng = np.random.default_rng(2)
    count = 5_000
    tokens = rng.integers(1, 65, count)
    seconds = Line.through(np.array([0.0, 65.0]), np.array([0.0, 0.065]), 64)
    arrival = np.cumsum(rng.exponential(0.045, count))
    jobs = queue(tiny(0, 1, 1, 0), seconds, prompts(arrival, 64 - tokens // 2))
    service = np.array([seconds.at(64 - t // 2) for t in tokens])
    wait = np.zeros(count)
    for i in range(1, count):
        wait[i] = max(0.0, wait[i - 1] + service[i - 1] - (arrival[i] - arrival[i - 1]))
    np.testing.assert_allclose(waits(jobs), wait, atol=1e-9)


def test_groups_that_arrive_together(tiny: Callable[[int, int, int, int], Instance]) -> None:
    """``M[X]/G/1``: mean wait ``w E[S^2] / 2 (1-load) + E[S] (E[X^2] - E[X]) / 2 E[X] (1-load)``."""
    rng = np.random.default_rng(3)
    groups, load = 30_000, 0.3
    size = rng.permutation(np.tile([1, 2, 3, 4], groups // 4))
    tokens = rng.permutation(np.tile([40, 60], size.sum() // 2))
    seconds = Line.through(np.array([0.0, 65.0]), np.array([0.0, 0.065]), 64)
    service = tokens * 1e-3
    rate = load / (service.mean() * size.mean())
    gaps = rng.permutation(-np.log1p(-(np.arange(groups) + 0.5) / groups)) / rate
    arrival = np.repeat(np.cumsum(gaps), size)
    found = waits(queue(tiny(0, 1, 1, 0), seconds, prompts(arrival, tokens)))
    # in a group, later members wait for earlier ones
    within = service.mean() * ((size**2).mean() - size.mean()) / (2 * size.mean())
    expected = rate * size.mean() * (service**2).mean() / (2 * (1 - load)) + within / (1 - load)
    assert found.mean() == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("in_flight", [None, 3])
def test_what_comes_at_one_instant_shares_the_first_pass(
    tiny: Callable[[int, int, int, int], Instance], in_flight: int | None
) -> None:
    """An idle server looks once for all that is there, as engines do, not at the first of them alone."""
    server = Server("mixed", by_rows(Line.flat(0.005)), NOTHING, 4, Habits(chunk_tokens=64), Gaps())
    requests = prompts(np.zeros(3), np.full(3, 20))
    course = Course(in_flight=in_flight)
    jobs = run(tiny(0, 1, 1, 0), [Standing(server, 0, 1.0, 0.0)], requests, course)
    assert [job.first_s for job in jobs] == pytest.approx([0.005] * 3)
    assert server.busy_s == pytest.approx(0.005)


def test_rounds_without_a_queue_last_as_they_are_told(
    tiny: Callable[[int, int, int, int], Instance],
) -> None:
    """A sequence alone: its prompt and then one round for each further token."""
    requests = Requests(np.zeros(1), np.array([10]), np.array([101]), np.array([0]))
    (job,) = queue(tiny(0, 1, 1, 0), Line.flat(0.002), requests)
    assert job.first_s == pytest.approx(0.002)
    assert job.ends_s == pytest.approx(0.002 + 100 * 0.002)


@pytest.mark.parametrize(
    ("every", "decoding", "first_s"), [(1, True, 0.020), (3, True, 0.050), (3, False, 0.020)]
)
def test_a_long_prompt_takes_a_piece_of_one_pass_in_so_many(
    every: int, decoding: bool, first_s: float, tiny: Callable[[int, int, int, int], Instance]
) -> None:
    """Four pieces; while a sequence decodes, two rounds of it between two of them. A pass has pieces of several prompts."""
    habits = Habits("mixed", chunk_tokens=64, piece_tokens=16, every=every)
    server = Server("mixed", by_rows(Line.flat(0.005)), NOTHING, 8, habits, Gaps())
    start = 0.1 if decoding else 0.0
    requests = Requests(
        np.array([0.0, start, start]), np.array([10, 64, 60]),
        np.array([1000 if decoding else 1, 1, 1]), np.zeros(3, dtype=np.int64),
    )  # fmt: skip
    jobs = run(tiny(0, 1, 1, 0), [Standing(server, 0, 1.0, 0.0)], requests, Course(habits))
    assert [job.first_s - job.started_s for job in jobs[1:]] == pytest.approx([first_s] * 2)
    assert server._rank == [0]


@pytest.mark.parametrize("habits", ["mixed", "between", "first", "throttled"])
@pytest.mark.parametrize("reserves", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_what_holds_of_every_replay(
    seed: int, reserves: bool, habits: str, tiny: Callable[[int, int, int, int], Instance]
) -> None:
    """Tokens are conserved, Little's law holds, times are in order, KV room is never passed."""
    rng = np.random.default_rng(seed)
    instance = tiny(seed, 4, 2, int(rng.choice([0, 4])))
    layout = mixed_layout(instance, 1, int(rng.choice([1, 2, 4])), 8)
    count = 300
    requests = Requests(
        np.cumsum(rng.exponential(0.002, count)),
        rng.integers(1, 300, count),
        rng.integers(1, 50, count),
        np.zeros(count, dtype=np.int64),
    )
    chunk = int(rng.integers(32, 300))
    if habits == "throttled":
        course = Course(Habits("mixed", chunk, reserves, piece_tokens=chunk // 3, every=4))
    else:
        course = Course(Habits(habits, chunk, reserves))  # type: ignore[arg-type]
    gaps = Gaps()
    fleet = standing(instance, layout, course.habits, gaps, requests.longest)
    for one in fleet:  # room for a few sequences of the longest kind
        one.server.share = Line.through(
            np.array([0.0, requests.longest]), np.array([0.0, 0.3]), requests.longest
        )
    jobs = run(instance, fleet, requests, course)
    (server,) = (one.server for one in fleet)
    assert not (server.taken)
    assert not (server.pending.tokens)
    assert server.pending.attention_s == pytest.approx(0.0, abs=1e-9)
    assert not any(server._rank)
    assert gaps.count == (requests.output_tokens - 1).sum()
    for job in jobs:
        assert 0 <= job.arrival_s <= job.started_s < job.first_s <= job.ends_s
    assert abs(server.context) < 1e-6
    assert server.kv_kept == pytest.approx(0.0, abs=1e-9)
    assert sum(server.kv_seconds) == pytest.approx(server.busy_s)
    if not server.put_back:
        decoding = sum(job.ends_s - job.first_s for job in jobs)
        assert server.slot_seconds == pytest.approx(decoding)
    assert reserves <= (server.put_back == 0)


def test_the_same_seed_gives_the_same_replay(
    tiny: Callable[[int, int, int, int], Instance],
) -> None:
    from costmodel.question.traffic.description import Arrivals, steady

    instance = tiny(3, 2, 2, 0)
    layout = mixed_layout(instance, 1, 2, 4)
    found = [
        replay(instance, layout, steady(instance.workload, Arrivals(rate=50.0), 200, seed))
        for seed in (7, 7, 8)
    ]
    assert found[0].ttft.tolist() == found[1].ttft.tolist()
    assert found[0].ttft.tolist() != found[2].ttft.tolist()


def test_full_load_gives_the_figures_of_evaluate(
    tiny: Callable[[int, int, int, int], Instance],
) -> None:
    """A closed loop over all slots at the workload's lengths: the throughput that ``evaluate`` promises."""
    from costmodel.evaluate import evaluate

    instance = tiny(5, 2, 2, 0)
    # long answers: a prompt's own pass keeps a slot too, which a steady moment does not count
    workload = instance.workload.model_copy(update={"output_tokens": 500})
    instance = replace(instance, workload=workload)
    layout = mixed_layout(instance, 1, 2, 4)
    priced = evaluate(instance, layout)
    count = 2_000
    requests = Requests(
        np.zeros(count),
        np.full(count, workload.input_tokens),
        np.full(count, workload.output_tokens),
        np.zeros(count, dtype=np.int64),
    )
    course = Course(in_flight=4)
    fleet = standing(instance, layout, course.habits, Gaps(), requests.longest)
    for one in fleet:
        one.server.share = NOTHING
    jobs = run(instance, fleet, requests, course)
    served = requests.output_tokens.sum() / max(job.ends_s for job in jobs)
    assert priced.output_tokens_per_s is not None
    assert served == pytest.approx(priced.output_tokens_per_s, rel=0.01)
