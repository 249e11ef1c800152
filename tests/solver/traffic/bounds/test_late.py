"""Requests that may miss the TPOT target are decoded all the same: no two kinds of equal passes take less than the bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.question.instance import Instance
from costmodel.question.scenario import Scenario
from costmodel.question.spread import spread_of
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Slo, Workload
from costmodel.replay.targets import Targets
from solver.clock import Clock
from solver.known import Known
from solver.search import search
from solver.shapes.shapes import ROLES
from solver.traffic.asked import Asked, questions
from solver.traffic.bounds.decoding import Array, Decoding
from solver.traffic.bounds.late import least_usd, rates_with_late
from solver.traffic.bounds.least_cost import least_cost

TPOT_S = 0.03
#: passes of so many sequences reach every expert: of small ones the prices count the experts of the next smaller batch
LONG_S = 0.12
#: share of requests that may be late
EXEMPT = 0.01


def drawn(seed: int, number: int = 400) -> Requests:
    """Lengths of which few are very long."""
    rng = np.random.default_rng(seed)
    given, answers = (rng.lognormal(mean, 1.2, number).astype(int) + 2 for mean in (6.5, 5.5))
    return Requests(
        np.arange(number) / 10.0, np.minimum(given, 60_000), np.minimum(answers, 8_000),
        np.zeros(number, dtype=np.int64),
    )  # fmt: skip


def known_of(
    model: str, cluster: str, requests: Requests, exempt: float, tpot_s: float = TPOT_S
) -> Known:
    """What every order has to carry where so large a share may be late."""
    workload = Workload(input_tokens=10, output_tokens=10)
    targets = Targets(2.0, tpot_s, 1.0 - exempt)
    base = Scenario(model=model, cluster=cluster, workload=workload)
    own = questions(base, Asked(requests, targets))
    assert own.exempt == pytest.approx(exempt)
    return Known(own.every, Clock(), 0.0, 0, None)


def seconds(known: Known, some: Decoding, slo: Slo) -> Array:
    """Seconds of a decode replica per request of all for some requests (others count 0) in equal passes."""
    instance: Instance = known.instance
    if not some.steps.any():
        return np.zeros(len(known.shapes))
    assert instance.workload.spread is not None
    workload = instance.workload.model_copy(
        update={"spread": some.spread(instance.workload.spread)}
    )
    asked = replace(
        instance, workload=workload, scenario=instance.scenario.model_copy(update={"slo": slo})
    )
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / known.pricer.again(asked).bounds(known.shapes).requests_per_s)


def some_of(own: Decoding, chosen: Array) -> Decoding:
    """As if the others took nothing."""
    return Decoding(own.steps * chosen, own.read * chosen, own.held * chosen)


def exceeded(known: Known, requests: Requests, most: Array) -> bool:
    """Whether a decode shape serves more with some requests late, decoded apart in equal passes."""
    own = Decoding.of(requests)
    decodes = (known.shapes.role == ROLES.index("decode")) & (most > 0)
    number = len(own.steps)
    drawn_s = np.random.default_rng(0).random(number)
    orders = [own.steps, own.read, own.held, own.read / own.steps, -own.steps, drawn_s]
    for late in (0, 1, int(EXEMPT * number)):
        for order in orders:
            chosen = np.zeros(number)
            chosen[np.argsort(-order)[:late]] = 1.0
            took = seconds(known, some_of(own, 1.0 - chosen), known.instance.slo)
            took = took + seconds(known, some_of(own, chosen), Slo())
            if (1.0 / most[decodes] > took[decodes] * (1 + 1e-6)).any():
                return True
    return False


@pytest.mark.parametrize(
    ("model", "cluster", "tpot_s"),
    [
        ("llama-3.1-8b", "hgx-h100", TPOT_S),
        ("qwen3-32b", "hgx-h200", TPOT_S),
        ("qwen3-32b", "hgx-h200", LONG_S),
        ("deepseek-v3", "hgx-h200@2", LONG_S),
        ("qwen3-30b-a3b", "hgx-a100", 0.05),
        ("qwen3-235b-a22b", "hgx-h100@2", 0.05),
    ],
)
def test_no_requests_decoded_apart_and_late_save_more_than_the_bound_allows(
    model: str, cluster: str, tpot_s: float
) -> None:
    known = known_of(model, cluster, drawn(3), EXEMPT, tpot_s)
    most = rates_with_late(known, drawn(3), EXEMPT)
    decodes = (known.shapes.role == ROLES.index("decode")) & (most > 0)
    assert (most[decodes] < known.items.upper[decodes] * 0.98).any()
    assert not exceeded(known, drawn(3), most)


@pytest.mark.parametrize(
    ("model", "cluster"), [("deepseek-v3", "hgx-h200@2"), ("qwen3-235b-a22b", "hgx-h100@2")]
)
def test_where_few_sequences_meet_the_target_nothing_is_told(model: str, cluster: str) -> None:
    # passes of few sequences grow in steps: lines through them had been far above
    known = known_of(model, cluster, drawn(3), EXEMPT, 0.015)
    most = rates_with_late(known, drawn(3), EXEMPT)
    assert (known.items.upper > 0).any()
    assert not exceeded(known, drawn(3), most)


def test_replicas_over_slow_links_gain_little_from_late_requests() -> None:
    # their passes grow faster than the batch, and again more slowly beyond the target
    known = known_of("deepseek-v3", "hgx-h200@2", drawn(3), EXEMPT, 0.05)
    most = rates_with_late(known, drawn(3), EXEMPT)
    wide = (known.shapes.role == ROLES.index("decode")) & (known.shapes.slices == 2) & (most > 0)
    best = known.items.upper[wide].max()
    assert most[wide].max() < 0.9 * best
    assert not exceeded(known, drawn(3), most)


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_lies_between_all_requests_in_time_and_late_ones_for_nothing(seed: int) -> None:
    requests, exempt = drawn(seed), 0.01
    known = known_of("llama-3.1-8b", "hgx-h100", requests, exempt)
    most = rates_with_late(known, requests, exempt)
    none_late = known_of("llama-3.1-8b", "hgx-h100", requests, 0.0).items.upper
    assert (most <= known.items.upper).all()
    assert (most >= none_late * (1 - 1e-6)).all()
    # of the best on the same chips: others are not looked at
    few, many = (
        {(one.role, one.parts): one.requests_per_s for one in known.items.best(rates)}
        for rates in (rates_with_late(known, requests, 0.005), most)
    )
    assert all(few[one] <= rate * (1 + 1e-9) for one, rate in many.items() if one in few)


def test_without_late_requests_with_windows_or_unlike_neighbours_the_bounds_stay() -> None:
    requests = drawn(1)
    known = known_of("llama-3.1-8b", "hgx-h100", requests, 0.01)
    assert (rates_with_late(known, requests, 0.0) == known.items.upper).all()
    windowed = known_of("gpt-oss-20b", "hgx-h100", requests, 0.01)
    assert (rates_with_late(windowed, requests, 0.01) == windowed.items.upper).all()
    # on a torus a shape may stand on quicker sets of chips than the one whose passes are timed
    torus = known_of("llama-3.1-8b", "tpu-v6e", requests, 0.01)
    several = [len(torus.pricer.ways_of(torus.shapes, row)) for row in range(len(torus.shapes))]
    assert max(several) > 1
    assert (rates_with_late(torus, requests, 0.01) == torus.items.upper).all()


def test_the_bound_of_an_answer_counts_the_decoding_of_late_requests() -> None:
    requests = drawn(2)
    scenario = Scenario(
        model="llama-3.1-8b",
        cluster="hgx-h100",
        workload=Workload(input_tokens=10, output_tokens=10),
    )
    asked = Asked(requests.at_rate(40.0), Targets(2.0, TPOT_S))
    own = questions(scenario, asked)
    known = Known(own.every, Clock(), 0.0, 0, None)
    for_nothing = least_usd(known, known.items.upper)
    every = search(own.every, clock=Clock(), gap=0.01)
    found = least_cost(own, asked, every, Clock(), 0, 1)
    assert found.usd_per_m_output_tokens > for_nothing * 1.05


@pytest.mark.parametrize("seed", range(3))
def test_whichever_requests_are_left_out_the_others_have_no_fewer_steps_contexts_or_kv(
    seed: int,
) -> None:
    requests, exempt = drawn(seed), 0.01
    least = spread_of(requests, exempt)
    assert least is not None
    own = Decoding.of(requests)
    orders = [own.steps, own.read, own.held, own.read / own.steps, own.held / own.steps]
    for order in orders:
        kept = np.argsort(order)[: len(order) - int(exempt * len(order))]
        rest = Decoding(own.steps[kept], own.read[kept], own.held[kept]).spread(least)
        assert rest.steps * len(kept) >= least.steps * len(order) * (1 - 1e-9)
        assert rest.context >= least.context * (1 - 1e-9)
        assert rest.kept >= least.kept * (1 - 1e-9)


@pytest.mark.parametrize("second_tokens", [0, 4])
def test_a_target_that_holds_for_no_second_token_bounds_nothing(second_tokens: int) -> None:
    """Of 400 requests as many as may miss the target, or fewer, have an answer of more than one token."""
    answers = np.ones(400, dtype=np.int64)
    answers[:second_tokens] = 50
    requests = replace(drawn(1), output_tokens=answers)
    workload = Workload(input_tokens=10, output_tokens=10)
    base = Scenario(model="qwen3-30b-a3b", cluster="hgx-h100", workload=workload)
    own = questions(base, Asked(requests, Targets(2.0, TPOT_S)))
    assert own.exempt == 0.0
    assert [one.slo.tpot for one in (own.mean, own.spread, own.every)] == [None] * 3
    spread = own.every.workload.spread
    assert spread is not None
    assert spread.steps == pytest.approx(1.0 + second_tokens * 48 / 400)
    answers[4] = 50
    more = questions(base, Asked(replace(requests, output_tokens=answers), Targets(2.0, TPOT_S)))
    assert (more.exempt > 0.0) is (second_tokens == 4)
