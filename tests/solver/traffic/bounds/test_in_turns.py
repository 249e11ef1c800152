"""Mixed replicas of few sequences: a request meets the prompts of others only, so that its tokens come as in decoding alone."""

from __future__ import annotations

import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.description import Arrivals, steady
from costmodel.question.workload import Workload
from costmodel.replay.replay import replay
from costmodel.replay.targets import Targets, judged
from costmodel.tolerance import RELATIVE
from solver.clock import Clock
from solver.search import search
from solver.traffic.asked import Asked, questions
from solver.traffic.bounds.least_cost import least_cost
from solver.traffic.search import search_traffic
from topology.errors import NoFeasibleLayout


@pytest.mark.parametrize(
    ("model", "cluster", "given", "answer", "rate", "tpot_s", "chips", "batch"),
    [
        ("qwen3-32b", "hgx-h100", 8000, 20, 0.4, 0.05, 1, 1),
        ("gpt-oss-20b", "hgx-h100", 16000, 50, 1.0, 0.01, 1, 1),
        ("llama-3.1-8b", "rtx4090", 4000, 10, 0.05, 0.05, 1, 1),
        ("llama-3.1-8b", "hgx-h100", 60, 400, 10.0, 0.02, 1, 64),
    ],
)
def test_no_layout_whose_replay_meets_the_targets_costs_less_than_the_bound(
    model: str,
    cluster: str,
    given: int,
    answer: int,
    rate: float,
    tpot_s: float,
    chips: int,
    batch: int,
) -> None:
    workload = Workload(input_tokens=given, output_tokens=answer)
    scenario = Scenario(model=model, cluster=cluster, workload=workload, pay="used")
    requests = steady(workload, Arrivals(rate=rate), 2000, 0)
    targets = Targets(10.0, tpot_s, 0.99)
    asked = Asked(requests, targets)
    instance = resolve_instance(scenario)
    layout = plain_layout(instance, "mixed", tp=chips, batch=batch)
    met = replay(instance, layout, requests)
    assert judged(met, targets).good >= 0.99
    price = evaluate(instance, layout).usd_per_hour
    assert price is not None
    cost = price / 3600 / (requests.rate * answer) * 1e6
    own = questions(scenario, asked)
    every = search(own.every, clock=Clock(), gap=0.0, brief=True)
    bound = least_cost(own, asked, every, Clock(), 0, 1)
    assert bound.usd_per_m_output_tokens <= cost * (1 + RELATIVE)


def test_a_first_token_that_a_steady_state_is_too_slow_for_is_not_proven_too_early() -> None:
    """In it a prompt just missed a full pass; few requests meet none, and are sooner."""
    workload = Workload(input_tokens=8000, output_tokens=100)
    scenario = Scenario(model="llama-3.1-8b", cluster="hgx-h100", workload=workload)
    requests = steady(workload, Arrivals(rate=0.1), 2000, 0)
    asked = Asked(requests, Targets(0.06, 0.03, 0.99))
    with pytest.raises(NoFeasibleLayout, match="steady state") as none:
        search_traffic(scenario, asked, clock=Clock())
    assert not none.value.proven
    instance = resolve_instance(scenario)
    layout = plain_layout(instance, "mixed", tp=8, batch=4)
    assert judged(replay(instance, layout, requests), asked.targets).good >= 0.99
