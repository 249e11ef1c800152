"""Mixed replicas decode for some of their time at least, where first tokens and answers are to be in time."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Workload
from costmodel.replay.job import Habits
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import Targets, judged
from solver.clock import Clock
from solver.known import Known
from solver.search import search
from solver.shapes.shapes import ROLES
from solver.traffic.asked import Asked, questions
from solver.traffic.bounds import late
from solver.traffic.bounds.late import least_usd, rates_with_late
from solver.traffic.bounds.least_cost import least_cost
from solver.traffic.bounds.under_way import UnderWay, decoding_part


def requests_of(arrival_s: np.ndarray, given: np.ndarray, answers: np.ndarray) -> Requests:
    return Requests(arrival_s, given, answers, np.zeros(len(given), dtype=np.int64))


def drawn(seed: int, number: int, bursts: int = 1) -> Requests:
    """Unlike answers; so many requests come at once each time."""
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(1.0, number) * (np.arange(number) % bursts == 0))
    given, answers = (rng.lognormal(mean, 0.8, number).astype(int) + 2 for mean in (6.0, 3.0))
    return requests_of(arrival_s + 0.1, given, answers)


def test_alike_requests_at_even_distances_need_their_steps_in_every_stretch() -> None:
    number, steps, ttft_s, tpot_s, floor_s = 400, 60, 3.0, 0.05, 0.02
    alike = np.full(number, steps + 1)
    requests = requests_of(np.arange(1, number + 1) * 0.25, alike, alike)
    found = UnderWay.several(requests, Targets(ttft_s, tpot_s, 1.0))
    part = decoding_part(found, np.array([floor_s, 0.0]))
    assert part[0] == pytest.approx(floor_s * steps / (ttft_s + steps * tpot_s), rel=1e-9)
    assert part[1] == 0.0
    # the requests that may be late need no steps in time
    fewer = decoding_part(
        UnderWay.several(requests, Targets(ttft_s, tpot_s, 0.99)), np.array([floor_s])
    )
    assert fewer[0] == pytest.approx(part[0] * (number - number // 100) / number, rel=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_decodes_for_a_smaller_part_of_the_time(seed: int) -> None:
    """The linear programme over all stretches between arrivals and deadlines; the same requests come again and again."""
    requests, rng = drawn(seed, 40, bursts=1 + seed % 4), np.random.default_rng(seed)
    ttft_s, tpot_s = float(rng.uniform(0.5, 20.0)), float(rng.uniform(0.05, 0.5))
    floor_s = tpot_s * float(rng.uniform(0.1, 0.6))
    every_s, steps = requests.duration_s, requests.output_tokens - 1.0
    begins, ends = requests.arrival_s, requests.arrival_s + ttft_s + steps * tpot_s
    times = np.unique(np.concatenate([[0.0, every_s], begins % every_s, ends % every_s]))
    lasting, middle = np.diff(times), (times[1:] + times[:-1]) / 2
    # how often each stretch lies between a request's arrival and its deadline
    turns = np.floor((ends[:, None] - middle) / every_s) - np.floor(
        (begins[:, None] - middle) / every_s
    )
    best = linprog(
        lasting, A_ub=-turns * lasting, b_ub=-floor_s * steps, bounds=[(0.0, 1.0)] * len(lasting)
    )
    assert best.success
    part = decoding_part(
        UnderWay.several(requests, Targets(ttft_s, tpot_s, 1.0)), np.array([floor_s])
    )
    assert 0.0 < part[0] <= best.fun / every_s * (1 + 1e-9)


def test_nothing_is_known_without_both_targets_or_without_steps() -> None:
    requests = drawn(0, 50)
    assert UnderWay.several(requests, Targets(2.0, None)) == ()
    assert UnderWay.several(requests, Targets(None, 0.05)) == ()
    ones = np.ones(50, dtype=np.int64)
    assert UnderWay.several(requests_of(requests.arrival_s, ones, ones), Targets(2.0, 0.05)) == ()
    assert decoding_part((), np.array([0.1])).tolist() == [0.0]


@pytest.mark.parametrize(
    ("model", "tp", "given", "answer", "batch", "part", "bursts", "prompts"),
    [
        ("llama-3.1-8b", 1, 2000, 200, 64, 1.0, 1, "between"),
        ("llama-3.1-8b", 1, 500, 10, 8, 0.9, 1, "between"),
        ("qwen3-32b", 4, 8000, 10, 2, 0.8, 1, "between"),
        ("qwen3-32b", 4, 8000, 10, 2, 0.9, 2, "first"),
        ("qwen3-32b", 1, 100, 50, 64, 0.9, 1, "first"),
    ],
)
def test_no_mixed_replica_whose_replay_meets_the_tightest_targets_serves_more(
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    tp: int,
    given: int,
    answer: int,
    batch: int,
    part: float,
    bursts: int,
    prompts: str,
) -> None:
    workload = Workload(input_tokens=given, output_tokens=answer)
    scenario = Scenario(model=model, cluster="hgx-h100", workload=workload, pay="used")
    instance = resolve_instance(scenario)
    layout = plain_layout(instance, "mixed", tp=tp, batch=batch)
    most, rng = evaluate(instance, layout).requests_per_s, np.random.default_rng(0)
    assert most is not None
    gaps_s = rng.exponential(bursts / (part * most), 1000 // bursts)
    arrival_s = np.repeat(np.cumsum(gaps_s), bursts) + np.tile(
        np.arange(bursts) * 1e-6, len(gaps_s)
    )
    lengths = (np.full(len(arrival_s), one) for one in (given, answer))
    requests = requests_of(arrival_s, *lengths)
    habits = Habits(prompts="first" if prompts == "first" else "between")
    met = replay(instance, layout, requests, Course(habits))
    targets = Targets(
        *(float(np.quantile(one, 0.995)) * (1 + 1e-5) for one in (met.ttft, met.tpot)), 0.99
    )
    assert judged(met, targets).meets
    own = questions(scenario, Asked(requests, targets))
    known = Known(own.every, Clock(), 0.0, 0, None)
    # every shape, not only the best on its chips
    monkeypatch.setattr(late, "_near_best", lambda _, rates: rates > 0)
    shapes = known.shapes
    mixed = shapes.role == ROLES.index("mixed")
    rows = mixed & (shapes.chips == tp) & (shapes.tp == tp) & (shapes.pp == 1)
    before = rates_with_late(known, requests, own.exempt)[rows].max()
    bound = rates_with_late(known, requests, own.exempt, targets)[rows].max()
    assert len(requests) / float(met.ends_s.max()) <= bound * (1 + 1e-6)
    assert bound < before


def test_the_bound_of_an_answer_counts_passes_that_short_waits_ask_for() -> None:
    workload = Workload(input_tokens=10, output_tokens=10)
    scenario = Scenario(model="deepseek-v3", cluster="hgx-h200@2", workload=workload)
    rng, number = np.random.default_rng(1), 2000
    given, answers = (rng.lognormal(mean, 0.4, number).astype(int) + 2 for mean in (6.5, 5.0))
    requests = requests_of(np.cumsum(rng.exponential(1 / 60.0, number)), given, answers)
    asked = Asked(requests, Targets(2.0, 0.05, 0.99))
    own = questions(scenario, asked)
    known = Known(own.every, Clock(), 0.0, 0, None)
    any_turns = least_usd(known, rates_with_late(known, requests, own.exempt))
    short = least_usd(known, rates_with_late(known, requests, own.exempt, asked.targets))
    # one mixed node would do, if prompts could wait while it decodes and answers while it does not
    assert short > any_turns * 1.2
    every = search(own.every, clock=Clock(), gap=0.01)
    found = least_cost(own, asked, every, Clock(), 0, 1)
    assert found.usd_per_m_output_tokens >= short * (1 - 1e-9)


def test_prompts_that_ride_in_decoding_passes_are_not_bounded_by_turns() -> None:
    requests, targets = drawn(3, 400), Targets(0.5, 0.02, 0.99)
    for engine in ("vllm", "trtllm"):
        scenario = Scenario(
            model="llama-3.1-8b", cluster="hgx-h100", engine=engine,
            workload=Workload(input_tokens=10, output_tokens=10),
        )  # fmt: skip
        own = questions(scenario, Asked(requests, targets))
        known = Known(own.every, Clock(), 0.0, 0, None)
        assert known.instance.engine is not None
        assert known.instance.engine.habits.prompts == "mixed"
        before = rates_with_late(known, requests, own.exempt)
        assert (rates_with_late(known, requests, own.exempt, targets) == before).all()
