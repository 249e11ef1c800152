"""A replay that ends as soon as a target is missed says what the whole one says."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.layout.layout import Layout, Role
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.description import Arrivals, BothLengths, Description, Lengths
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Slo, Workload
from costmodel.replay.job import Job
from costmodel.replay.replay import replay, replay_with
from costmodel.replay.targets import Patience, Targets, judged, judged_together

LENGTHS = BothLengths(input=Lengths(mean=1000, std=800), output=Lengths(mean=150, std=100))


def draw(rate: float) -> Requests:
    return Description(arrivals=Arrivals(rate=rate), lengths=LENGTHS).draw(800, 3)


def instance() -> Instance:
    workload = Workload(input_tokens=1000, output_tokens=150)
    return resolve_instance(
        Scenario(model="llama-3.1-8b", cluster="hgx-h100", workload=workload, slo=Slo(tpot=0.03))
    )


def layout(asked: Instance, roles: tuple[Role, ...]) -> Layout:
    batches: dict[Role, int] = {"prefill": 8, "decode": 320, "mixed": 110}
    parts = [
        plain_layout(asked, role, tp=1, batch=batches[role], first_chip=chip)
        for chip, role in enumerate(roles)
    ]
    replicas = tuple(one for part in parts for one in part.replicas)
    return parts[0].model_copy(update={"replicas": replicas})


@pytest.mark.parametrize("roles", [("mixed", "mixed"), ("prefill", "prefill", "decode")])
@pytest.mark.parametrize("rate", [20.0, 45.0, 60.0, 400.0])
@pytest.mark.parametrize(
    "targets",
    [Targets(0.4, 0.02, 0.99), Targets(None, 0.02), Targets(0.4), Targets(0.4, 0.02, 0.7)],
)
def test_the_verdict_is_that_of_the_whole_replay(
    roles: tuple[Role, ...], rate: float, targets: Targets
) -> None:
    asked, requests = instance(), draw(rate)
    whole = judged(replay(asked, layout(asked, roles), requests), targets)
    patience = Patience(targets, len(requests))
    met = replay_with(asked, layout(asked, roles), requests, patience)
    assert patience.over == (not whole.meets) == (met is None)
    if met is not None:
        assert patience.so_far == whole
    else:
        assert patience.so_far.late_first <= whole.late_first
        assert patience.so_far.slow_tokens <= whole.slow_tokens
        # it ends with the first request too many
        assert min(patience.late, patience.slow, patience.either) <= 0.3 * len(requests) + 1


def served(ttft_s: float, tpot_s: float) -> Job:
    job = Job(0, 1.0, 100, 11)
    job.first_s = 1.0 + ttft_s
    job.ends_s = job.first_s + 10 * tpot_s
    return job


@pytest.mark.parametrize("together", [True, False])
def test_one_that_is_late_and_slow_counts_once(together: bool) -> None:
    """Six of a thousand late and six slow: all good ones are 99.4 % or 98.8 %."""
    patience = Patience(Targets(0.4, 0.02, 0.99), 1000)
    bad = [served(0.5, 0.03)] * 6 if together else [served(0.5, 0.01), served(0.1, 0.03)] * 6
    for job in bad:
        patience.ended(job)
    assert (patience.late, patience.slow) == (6, 6)
    assert patience.over == (not together)
    assert patience.so_far.good == pytest.approx(0.994 if together else 0.988)


def test_replays_together_are_judged_by_all_of_their_requests() -> None:
    """One that misses its target beside one that meets it: percentiles of all, not the worst."""
    asked = instance()
    stands = layout(asked, ("mixed",))
    targets = Targets(0.5, 0.03)
    parts = [replay(asked, stands, draw(rate)) for rate in (5.0, 60.0)]
    slow, quick = (judged(one, targets).late_first for one in reversed(parts))
    assert quick < slow
    both = judged_together(parts, targets)
    assert both.late_first == pytest.approx((quick + slow) / 2)
    assert both.good == pytest.approx(np.mean([judged(one, targets).good for one in parts]))
