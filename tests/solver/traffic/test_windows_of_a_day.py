"""The bound of the RAGPulse page: what windows rule out, beside a count by hand and a schedule that exists."""

from __future__ import annotations

import numpy as np

from benchmarks.ragpulse.deployments import TPOT_S, TTFT_S
from benchmarks.ragpulse.floors import CONTEXTS, PROMPTS, WINDOWS_S, Prices, Work, fewest
from costmodel.question.traffic.requests import Requests


def requests(seed: int, count: int = 400) -> Requests:
    rng = np.random.default_rng(seed)
    given, asked = rng.integers(64, 3000, count), rng.integers(1, 300, count)
    return Requests(np.sort(rng.uniform(0, 60, count)), given, asked, np.zeros(count, np.int64))


def prices(chips: int = 64) -> Prices:
    """A token of a prompt takes 0.1 ms of a GPU, one of an answer 1 ms; fewer than three GPUs hold no model."""
    prompt, step = (
        np.full((len(PROMPTS), chips + 1), 1e-4),
        np.full((len(CONTEXTS), chips + 1), 1e-3),
    )
    prompt[:, :3] = step[:, :3] = np.inf
    return Prices(prompt, step)


def dropped_by_hand(found: Requests, chips: int, seconds: float) -> int:
    """Window by window: the heaviest go until the others fit."""
    late = 0
    for window in range(int(60 / seconds) + 1):
        end = (window + 1) * seconds
        work = []
        for at, given, asked in zip(
            found.arrival_s, found.input_tokens, found.output_tokens, strict=True
        ):
            if at // seconds == window:
                first = 1e-4 * given if at + TTFT_S <= end else 0.0
                last = at + TTFT_S + (asked - 1) * TPOT_S <= end
                work.append(first + (1e-3 * (asked - 1) if last else 0.0))
        while sum(work) > chips * seconds:
            work.remove(max(work))
            late += 1
    return late


def test_windows_are_counted_as_by_hand() -> None:
    for seed in range(4):
        found = requests(seed)
        work, own = Work(found, found.input_tokens), prices()
        for floor in (0.5, 0.8, 0.95, 1.0):
            by_hand = 3  # no model fits on fewer
            while any(
                dropped_by_hand(found, by_hand, seconds) > round((1 - floor) * len(found))
                for seconds in WINDOWS_S
            ):
                by_hand += 1
            assert fewest(work, own, floor, 64) == by_hand


def test_gpus_that_serve_each_request_at_once_are_never_ruled_out() -> None:
    """One GPU computes a request on its own, in order of arrival; who waits too long is not covered."""
    for seed in range(4):
        found = requests(seed)
        work = Work(found, found.input_tokens)
        needs = 1e-4 * found.input_tokens + 1e-3 * (found.output_tokens - 1)
        for chips in (3, 4, 6):
            free, covered = np.zeros(chips), 0
            for at, need, given in zip(found.arrival_s, needs, found.input_tokens, strict=True):
                one = int(np.argmin(free))
                start = max(free[one], at)
                if start + 1e-4 * given - at <= TTFT_S:
                    free[one], covered = start + need, covered + 1
            assert fewest(work, prices(), covered / len(found), 64) <= chips


def test_what_prompts_share_is_not_counted() -> None:
    count = np.array([100, 90, 70])
    shared = Requests(
        np.arange(3.0), count, count, count * 0, [(1, 2), (1, 3), (4,)], [(60, 40), (60, 30), (70,)]
    )
    assert Work.of(shared).new.tolist() == [40, 30, 70]
