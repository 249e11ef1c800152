"""Prompts computed as they arrive: the fewest late ones, what shapes compute at most, fewest chips; no layout that is in time costs less."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement
from math import inf

import numpy as np
import pytest

from costmodel.layout.layout import Layout, Role
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Workload
from costmodel.replay.capacity import _first_tokens
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import Targets, judged
from solver.clock import Clock
from solver.fleet.items import Item
from solver.known import Known
from solver.search import search
from solver.shapes.shapes import ROLES
from solver.traffic.asked import Asked, questions
from solver.traffic.bounds.arrivals import (
    Array,
    fewest_chips,
    least_tokens_per_s,
    most_in_time,
    tokens_per_s,
    too_many_late,
    usd_in_time,
)
from solver.traffic.bounds.least_cost import LeastCost, least_cost
from topology.errors import NoFeasibleLayout

TARGETS = Targets(1.0, 0.1, 0.99)


def in_bursts(seed: int, rate: float, together: int = 12, count: int = 400) -> Requests:
    """Prompts that come many at a time, and answers of some tokens."""
    rng = np.random.default_rng(seed)
    bursts = np.sort(rng.random(count // together + 1))
    arrival = np.sort(rng.choice(bursts, count) + rng.random(count) * 1e-4)
    given = np.minimum(rng.lognormal(7.0, 0.8, count).astype(int) + 2, 12_000)
    answers = rng.integers(2, 30, count)
    own = Requests(arrival, given, answers, np.zeros(count, dtype=np.int64))
    return own.at_rate(rate)


def asked(
    model: str, cluster: str, requests: Requests, targets: Targets = TARGETS
) -> tuple[Scenario, Asked]:
    workload = Workload(input_tokens=10, output_tokens=10)
    return Scenario(model=model, cluster=cluster, workload=workload), Asked(requests, targets)


def bound_of(scenario: Scenario, own: Asked) -> LeastCost:
    every = questions(scenario, own)
    found = search(every.every, clock=Clock(), gap=0.0, seed=0, brief=True)
    return least_cost(every, own, found, Clock(), 0, 1)


def fewest_late(arrival_s: Array, takes_s: Array, most_s: float) -> int:
    """By every choice of jobs that are left out."""
    every = range(len(arrival_s))
    for number in every:
        for out in combinations(every, number):
            now, in_time = 0.0, True
            for job in every:
                if job not in out:
                    now = max(now, arrival_s[job]) + takes_s[job]
                    in_time &= now <= arrival_s[job] + most_s
            if in_time:
                return number
    return len(arrival_s)


@pytest.mark.parametrize("seed", range(300))
def test_the_fewest_late_jobs_are_those_of_every_choice(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("solver.traffic.bounds.arrivals._AT_ONCE", 1 + seed % 4)
    rng = np.random.default_rng(seed)
    number = int(rng.integers(1, 9))
    arrival_s = np.sort(rng.integers(0, 12, number)).astype(float)
    takes_s = rng.integers(0, 8, number) / 2.0
    most_s = float(rng.integers(1, 8))
    fewest = fewest_late(arrival_s, takes_s, most_s)
    for late in range(number + 1):
        assert too_many_late(arrival_s, takes_s, most_s, late) == (fewest > late)


def test_the_least_speed_is_the_one_below_which_too_many_are_late() -> None:
    requests, late = in_bursts(1, 5.0), 4
    least = least_tokens_per_s(requests, TARGETS)
    tokens = requests.input_tokens.astype(float)
    assert too_many_late(requests.arrival_s, tokens / (least * 0.999), 1.0, late)
    assert not too_many_late(requests.arrival_s, tokens / (least * 1.001), 1.0, late)
    # bursts ask for more than the mean, which is all that is asked of a minute
    assert least > 2.0 * tokens.mean() * requests.rate
    assert least_tokens_per_s(requests, Targets(60.0)) < 1.3 * tokens.mean() * requests.rate
    assert least_tokens_per_s(requests, Targets(None, 0.05)) == 0.0
    # a stricter share of requests that meet both targets is one of first tokens, too
    assert least_tokens_per_s(requests, Targets(1.0, 0.1, 0.999)) > least


def prefill_replicas(instance: Instance, chips: int) -> Iterator[tuple[Layout, dict[str, int]]]:
    experts = instance.operations.moe is not None
    for tp in (1, 2, 4):
        for attention_dp in (1, 2, 4):
            if tp * attention_dp > chips or (attention_dp > 1 and not experts):
                continue
            shape = {"tp": tp, "attention_dp": attention_dp, "pp": 1}
            yield plain_layout(instance, "prefill", **shape, batch=attention_dp), shape


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
@pytest.mark.parametrize("length", [300, 5_000])
def test_no_prefill_replica_computes_more_tokens_than_its_shape_may(
    model: str, length: int
) -> None:
    count = 900_000 // length  # many passes
    requests = Requests(
        np.zeros(count), np.full(count, length), np.ones(count, dtype=np.int64),
        np.zeros(count, dtype=np.int64),
    )  # fmt: skip
    own = questions(*asked(model, "hgx-h100", in_bursts(1, 5.0)))
    known = Known(own.every, Clock(), 0.0, 0, None)
    most, nearest = tokens_per_s(known), 0.0
    for layout, shape in prefill_replicas(own.every, 8):
        alike = known.shapes.role == ROLES.index("prefill")
        for name, value in shape.items():
            alike &= getattr(known.shapes, name) == value
        given = own.every, layout, layout.replicas[0], requests, Course.of(own.every), None
        served = count * length / _first_tokens(*given).max()
        assert served <= most[alike].max() * (1 + 1e-9)
        nearest = max(nearest, served / most[alike].max())
    assert nearest > 0.75  # what tokens attend to and ranks that wait are not much here


@pytest.mark.parametrize("seed", range(60))
def test_fewest_chips_are_those_of_every_fleet(seed: int) -> None:
    rng = np.random.default_rng(seed)
    items, prompts = [], []
    for role in range(3):
        for chips in range(1, int(rng.integers(2, 5))):
            rate = chips * float(rng.uniform(0.5, 1.5))
            items.append(Item(len(items), role, 0, 1, chips, rate))
            if role != ROLES.index("decode"):
                prompts.append(Item(len(prompts), role, 0, 1, chips, chips * rng.uniform(50, 150)))
    rate, tokens, most = float(rng.uniform(1, 5)), float(rng.uniform(50, 900)), 7
    found = []
    for number in range(1, most + 1):
        for fleet in combinations_with_replacement(items, number):
            chips = sum(one.chips for one in fleet)
            served = [
                sum(one.requests_per_s for one in fleet if one.role == role) for role in range(3)
            ]
            if chips > most or min(served[0], served[1]) + served[2] < rate:
                continue
            # its chips that compute prompts, in the best replicas that they may be
            own = chips - sum(one.chips for one in fleet if one.role == ROLES.index("decode"))
            best = max(
                (
                    sum(one.requests_per_s for one in some)
                    for few in range(own + 1)
                    for some in combinations_with_replacement(prompts, few)
                    if sum(one.chips for one in some) <= own
                ),
                default=0.0,
            )
            if best >= tokens:
                found.append(chips)
    assert fewest_chips(prompts, items, tokens, rate, most) == min(found, default=None)


def layouts(instance: Instance, chips: int) -> Iterator[Layout]:
    """Replicas of one chip each: so many of prefill and of decode, or all mixed."""

    def some(role: Role, first: int, number: int) -> list[Layout]:
        return [
            plain_layout(instance, role, tp=1, batch=1 if role == "prefill" else 16, first_chip=at)
            for at in range(first, first + number)
        ]

    for number in range(1, chips + 1):
        every = [some("mixed", 0, number)]
        every += [
            some("prefill", 0, own) + some("decode", own, number - own) for own in range(1, number)
        ]
        for parts in every:
            replicas = tuple(part.replicas[0] for part in parts)
            yield parts[0].model_copy(update={"replicas": replicas})


@pytest.mark.parametrize(("seed", "rate", "together"), [(1, 8.0, 40), (2, 5.0, 60), (3, 8.0, 100)])
def test_no_layout_that_is_in_time_costs_less_than_the_bound(
    seed: int, rate: float, together: int
) -> None:
    requests = in_bursts(seed, rate, together)
    scenario, own = asked("llama-3.1-8b", "hgx-h100", requests)
    found = bound_of(scenario, own)
    assert any(line.startswith("arrivals: ") for line in found.covers)
    question = questions(scenario, own).every
    to_usd = 1e6 / (3600.0 * rate * question.workload.output_tokens)
    price = question.cluster.usable[0].chip.usd_per_hour
    met = [
        len(layout.replicas)
        for layout in layouts(question, 8)
        if judged(replay(question, layout, requests), TARGETS).meets
    ]
    steady = search(question, clock=Clock(), gap=0.0, seed=0, brief=True)
    assert steady.evaluation.chips_used == 1  # all that the mean asks for
    assert 2 * price * to_usd <= found.usd_per_m_output_tokens * (1 + 1e-9)
    assert found.usd_per_m_output_tokens <= min(met) * price * to_usd * (1 + 1e-9)


def test_bursts_that_no_order_on_all_chips_serves_in_time_have_no_layout() -> None:
    requests = in_bursts(1, 20.0, together=200)
    targets = Targets(0.3, 0.1, 0.99)
    with pytest.raises(NoFeasibleLayout, match="as they arrive, whatever the order"):
        bound_of(*asked("llama-3.1-8b", "hgx-h100", requests, targets))


def test_chips_that_compute_the_prompts_in_time_may_be_too_few_beside_decoding() -> None:
    scenario, own = asked("llama-3.1-8b", "hgx-h100", in_bursts(0, 5.0))
    known = Known(questions(scenario, own).every, Clock(), 0.0, 0, None)
    prefill = [one for one in known.items.best(known.items.upper) if ROLES[one.role] == "prefill"]
    assert usd_in_time(known, known.items.best(known.items.upper), own.requests, own.targets) > 0.0
    with pytest.raises(
        NoFeasibleLayout, match="to compute their prompts as they come and to decode, all 8 chips"
    ):
        usd_in_time(known, prefill, own.requests, own.targets)


def test_where_neighbours_matter_nothing_is_told() -> None:
    own = questions(*asked("llama-3.1-8b", "tpu-v5e-16", in_bursts(1, 5.0)))
    assert np.isinf(tokens_per_s(Known(own.every, Clock(), 0.0, 0, None))).any()


def test_the_highest_rate_is_that_whose_least_speed_is_what_all_chips_compute() -> None:
    requests, targets = in_bursts(1, 20.0, together=200), Targets(0.3, 0.1, 0.99)
    own = questions(*asked("llama-3.1-8b", "hgx-h100", requests, targets))
    known = Known(own.every, Clock(), 0.0, 0, None)
    most = most_in_time(known, requests, targets)
    assert 0.0 < most < 20.0
    each = tokens_per_s(known)
    computed = 8 * (each / known.shapes.chips).max()
    assert least_tokens_per_s(requests.at_rate(most * 1.01), targets) > computed
    assert least_tokens_per_s(requests.at_rate(most * 0.99), targets) < computed
    assert most_in_time(known, requests.at_rate(most * 0.99), targets) == inf
    assert most_in_time(known, requests, Targets(None, 0.1)) == inf
