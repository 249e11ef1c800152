"""Mixed replicas of few sequences: a request meets the prompts of others only, and decodes in passes of unlike size."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.description import Arrivals, steady
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Workload
from costmodel.replay.replay import replay
from costmodel.replay.targets import Targets, judged
from costmodel.tolerance import RELATIVE
from solver.bounds.unlike import most_in_turns
from solver.clock import Clock
from solver.search import search
from solver.traffic.asked import Asked, questions
from solver.traffic.bounds.least_cost import least_cost


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
    assert _bound(scenario, asked) <= _cost(scenario, layout, requests) * (1 + RELATIVE)


@pytest.mark.parametrize(("batch", "part"), [(2, 0.8), (4, 0.6), (4, 0.9)])
def test_passes_of_fewer_and_of_more_sequences_may_take_turns_to_meet_the_target(
    batch: int, part: float
) -> None:
    """Requests at even distances: the target lies between the passes of ``n`` and ``n + 1`` sequences, and both run."""
    workload = Workload(input_tokens=30, output_tokens=200)
    scenario = Scenario(model="qwen3-30b-a3b", cluster="hgx-h100", workload=workload, pay="used")
    instance = resolve_instance(scenario)
    layout = plain_layout(instance, "mixed", tp=1, batch=batch)
    most = evaluate(instance, layout).requests_per_s
    assert most is not None
    requests = steady(workload, Arrivals(process="constant", rate=part * most), 2000, 0)
    met = replay(instance, layout, requests)
    # the tightest target that this layout meets
    targets = Targets(10.0, float(np.quantile(met.tpot, 0.995)) * (1 + 1e-5), 0.99)
    assert judged(met, targets).good >= 0.99
    bound = _bound(scenario, Asked(requests, targets))
    assert bound <= _cost(scenario, layout, requests) * (1 + RELATIVE)


def test_the_best_turns_are_those_of_the_linear_programme() -> None:
    draw = np.random.default_rng(0)
    took, tpot = (
        np.sort(draw.random((6, 40)) + 0.1, axis=0)[::-1],
        np.sort(draw.random((6, 40)) + 0.1, axis=0),
    )
    took[draw.random(took.shape) < 0.2] = np.inf
    found = most_in_turns(took, tpot, 0.5)
    for shape, most in enumerate(found):
        held = np.isfinite(took[:, shape])
        best = linprog(
            took[held, shape], A_ub=[tpot[held, shape]], b_ub=[0.5],
            A_eq=[np.ones(held.sum())], b_eq=[1.0],
        )  # fmt: skip
        assert (1.0 / most if most else np.inf) == pytest.approx(
            best.fun if best.success else np.inf
        )


def _bound(scenario: Scenario, asked: Asked) -> float:
    """Dollars per million output tokens that no layout for this traffic costs less than."""
    own = questions(scenario, asked)
    every = search(own.every, clock=Clock(), gap=0.0, brief=True)
    return least_cost(own, asked, every, Clock(), 0, 1).usd_per_m_output_tokens


def _cost(scenario: Scenario, layout: Layout, requests: Requests) -> float:
    """What a layout costs per million output tokens of this traffic."""
    price = evaluate(resolve_instance(scenario), layout).usd_per_hour
    assert price is not None
    return price / 3600 / (requests.rate * float(requests.output_tokens.mean())) * 1e6
