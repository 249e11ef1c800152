"""The load that a pool may carry: how unevenly requests come."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.question.traffic.requests import Requests
from costmodel.replay.targets import Targets
from solver.traffic.loads import dispersion, queued


def arriving(arrival_s: np.ndarray) -> Requests:
    ones = np.ones(len(arrival_s), dtype=np.int64)
    return Requests(arrival_s, ones, ones, 0 * ones)


def test_dispersion_is_that_of_counts_in_windows() -> None:
    times = np.random.default_rng(2).gamma(0.3, 1.0, 500).cumsum()
    times -= times[0]
    counts = [
        int(((times >= start) & (times < start + 3.0)).sum())
        for start in np.arange(0.0, times[-1] - 3.0, 3.0)
    ]
    assert dispersion(arriving(times), 3.0) == pytest.approx(
        np.var(counts) / np.mean(counts), rel=1e-9
    )


def test_requests_that_come_once_in_years_take_no_memory() -> None:
    """Billions of windows, of which three have a request each: as even as chance."""
    assert dispersion(arriving(np.array([0.0, 1e9, 2.5e9, 3e9])), 0.3) == 1.0


def late(requests: Requests, each_s: np.ndarray, wait_s: float) -> float:
    """Share of the requests that wait longer for one server that takes them as they come."""
    free, waited = 0.0, 0
    for arrival_s, took_s in zip(requests.arrival_s.tolist(), each_s.tolist(), strict=True):
        waited += free - arrival_s > wait_s
        free = max(free, arrival_s) + took_s
    return waited / len(requests)


def late_shortest(requests: Requests, each_s: np.ndarray, wait_s: float) -> float:
    """The same where the shortest that waits is next."""
    waiting, waited, now = list[tuple[float, int]](), 0, 0.0
    coming = list(range(len(requests)))
    while coming or waiting:
        if not waiting:
            now = max(now, float(requests.arrival_s[coming[0]]))
        while coming and requests.arrival_s[coming[0]] <= now:
            waiting.append((float(each_s[coming[0]]), coming.pop(0)))
        took_s, at = min(waiting)
        waiting.remove((took_s, at))
        waited += now - requests.arrival_s[at] > wait_s
        now += took_s
    return waited / len(requests)


def prompt_s(requests: Requests) -> np.ndarray:
    return 0.003 * requests.input_tokens.astype(float)


@pytest.mark.parametrize("shortest", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_queue_of_each_run_says_what_load_prefill_may_carry(seed: int, shortest: bool) -> None:
    """With a little less capacity one request in a hundred waits too long in some run, with a little more in none."""
    rng = np.random.default_rng(seed)
    runs = []
    for _ in range(3):
        tokens = rng.integers(1, 100, 2000)
        arrival = np.cumsum(rng.gamma(0.3, 1.0, 2000))
        runs.append(Requests(arrival - arrival[0], tokens, 0 * tokens + 1, 0 * tokens))
    targets, ttft_s = Targets(20.0, None), 4.0
    load = queued(runs, prompt_s, targets, ttft_s, shortest=shortest)["prefill"]
    assert 0.5 < load < 1.0
    own = runs[0].rate * prompt_s(runs[0]).mean()
    waits = late_shortest if shortest else late

    def some_late(part: float) -> bool:
        return max(waits(one, part * prompt_s(one) / own, 16.0) for one in runs) > 0.01

    assert not some_late(load * (1.0 if shortest else 0.998))
    # with the shortest first a little more may be late where still more is not
    assert any(some_late(min(1.0, load * (1.005 + more))) for more in (0.0, 0.005 * shortest))


def test_a_few_very_long_prompts_let_others_pass_where_the_shortest_is_next() -> None:
    """Less than one in a hundred is so long: as they come, all that came later wait for each."""
    rng = np.random.default_rng(6)
    tokens = np.where(rng.random(4000) < 0.008, 4000, rng.integers(1, 100, 4000))
    arrival = np.cumsum(rng.exponential(0.1, 4000))
    requests = Requests(arrival - arrival[0], tokens, 0 * tokens + 1, 0 * tokens)
    first, shortest = (
        queued([requests], prompt_s, Targets(20.0, None), 4.0, shortest=one)["prefill"]
        for one in (False, True)
    )
    assert shortest > 1.1 * first


def test_answers_have_slots_for_the_most_that_decode_at_once() -> None:
    """100 answers of 100 tokens begin each second and take 5 s; then twice as many for as long."""
    arrival = np.concatenate((np.arange(3000) / 100.0, 30.0 + np.arange(3000) / 200.0))
    tokens = np.full(len(arrival), 100)
    even, twice = (
        Requests(own, tokens[: len(own)], tokens[: len(own)], 0 * tokens[: len(own)])
        for own in (arrival[:3000], arrival)
    )
    targets = Targets(2.0, 0.05)
    # two seconds may pass before an answer has a slot: two fifths of the time that it decodes
    assert queued([even], prompt_s, targets, 0.0)["decode"] == 1.0
    found = queued([even, twice], prompt_s, targets, 0.0)
    assert found["decode"] == pytest.approx(1.4 / 2, rel=0.01)
    assert found["mixed"] == min(found["prefill"], found["decode"])


@pytest.mark.parametrize("size", [1, 20, 300])
def test_bursts_leave_a_pool_less_than_half_of_its_load(size: int) -> None:
    """Of requests that come all at once each computes in a tenth of a second, and all but one in a hundred in a second."""
    arrival = np.repeat(np.arange(2000 // size) * 0.2 * size, size)
    ones = np.ones(len(arrival), dtype=np.int64)
    requests = Requests(arrival, 100 * ones, ones, 0 * ones)

    def each_s(own: Requests) -> np.ndarray:
        return 0.001 * own.input_tokens.astype(float)

    load = queued([requests], each_s, Targets(1.0, None), 0.0)["prefill"]
    # the last but one in a hundred of a burst waits for those before it: at most a second
    replicas = requests.rate * 0.1
    waits = 0.1 * 0.99 * (size - 1) / replicas
    assert load == pytest.approx(min(1.0, 1.0 / waits if waits else 1.0), rel=0.03)
