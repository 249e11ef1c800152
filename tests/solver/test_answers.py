"""Which of equal answers is given, that it is the same every time, and questions at the edge."""

from __future__ import annotations

import itertools
import random
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from ortools.sat.python import cp_model

from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.api import solve
from rackfit.documents.result import Result
from solver.clock import Clock
from solver.experts.replicas import LargestPieces
from solver.fleet.asked import FleetAnswer
from solver.known import Known
from solver.place.realise import Realiser
from solver.search import search
from solver.shapes.pools import pool_classes
from solver.threads import side_by_side
from solver.verify import better
from topology import load_cluster
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime

NODE = {"rack": "node", "fabric": {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]}}


def asked(**question: Any) -> Instance:
    lengths = {"input_tokens": 1000, "output_tokens": 200}
    return resolve_instance(Scenario(**({"workload": Workload(**lengths)} | question)))


def nodes(path: Path, *sizes: int, **row: Any) -> str:
    domains = [{**NODE, "chips": [{"chip": "h100", "count": size, **row}]} for size in sizes]
    spec = {"name": "nodes", "domains": domains, "scale_out": {"kind": "leaf-spine"}}
    path.write_text(yaml.safe_dump(spec))
    return str(path)


def test_of_fleets_as_dear_the_one_that_serves_most_is_taken(tmp_path: Path) -> None:
    """Eleven chips serve 7.59 requests per second in one way, 7.67 in another, which more asked for finds."""
    workload = Workload(input_tokens=8000, cached_tokens=4800, output_tokens=500)
    question = {
        "model": "qwen3-235b-a22b-fp8", "cluster": nodes(tmp_path / "odd.yaml", 4, 4, 4, 2),
        "workload": workload, "slo": {"ttft": 3.0}, "engine": "vllm",
    }  # fmt: skip
    found, more = (solve(asked(**question, rate=rate)).evaluation for rate in (7.4, 7.6))
    assert found.usd_per_hour == pytest.approx(more.usd_per_hour)
    assert found.priced.requests_per_s >= more.priced.requests_per_s * (1 - 1e-9)


def test_capacity_decides_before_ttft_and_ttft_before_tpot() -> None:
    one = solve(asked(model="llama-3.1-8b", cluster="hgx-h100", rate=5.0)).evaluation
    assert one.ttft_s is not None
    assert one.tpot_s is not None
    assert one.usd_per_m_output_tokens is not None
    assert not better(one, one)
    faster = replace(one, ttft_s=one.ttft_s / 2)
    assert better(faster, one)
    assert not better(one, faster)
    assert better(replace(one, tpot_s=one.tpot_s / 2), one)
    assert better(faster, replace(one, tpot_s=one.tpot_s / 2))
    priced = replace(one.priced, requests_per_s=one.priced.requests_per_s * 2)
    roomier = replace(one, priced=priced, ttft_s=one.ttft_s * 2)
    assert better(roomier, faster)
    assert not better(
        replace(roomier, usd_per_m_output_tokens=one.usd_per_m_output_tokens * 1.1), one
    )
    assert better(one, None)


def test_the_same_seed_gives_the_same_answer_on_a_slow_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A clock that shows twice as much at every look changes neither the answer nor its runner-up."""
    instance = asked(model="gpt-oss-20b", cluster="hgx-h100", slo={"tpot": 0.01})
    plain = solve(instance)
    looks = itertools.count()
    monkeypatch.setattr("solver.clock.time.perf_counter", lambda: 2.0 ** min(next(looks), 1000))
    slow = solve(instance)
    assert slow.layout == plain.layout
    assert plain.search.runner_up is not None
    assert slow.search.runner_up is not None
    assert slow.search.runner_up.layout == plain.search.runner_up.layout


def test_threads_place_and_price_and_give_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = asked(model="gpt-oss-20b", cluster="hgx-h100@2", slo={"ttft": 1.0, "tpot": 0.01})
    seen: set[str] = set()
    realise = Realiser.realise

    def noted(self: Realiser, row: int, most_per_rank: int) -> Any:
        seen.add(threading.current_thread().name)
        return realise(self, row, most_per_rank)

    monkeypatch.setattr(Realiser, "realise", noted)
    answers: list[Result] = []
    threads = []
    for workers in (1, 3):
        seen.clear()
        answers.append(solve(instance, workers=workers))
        threads.append(len({name for name in seen if name.startswith("ThreadPool")}))
    assert threads[0] == 0
    assert threads[1] > 0
    one, three = answers
    assert one.layout == three.layout
    assert one.certificate == three.certificate
    assert one.search.runner_up is not None
    assert three.search.runner_up is not None
    assert one.search.runner_up.layout == three.search.runner_up.layout
    assert three.workers == 3


@pytest.mark.parametrize("rate", [1e-4, 1e-5, 1e-9])
def test_a_rate_below_one_unit_of_the_model_is_served(rate: float) -> None:
    found = solve(asked(model="llama-3.1-8b", cluster="hgx-h100", rate=rate))
    assert found.evaluation.chips_used == 1
    assert found.evaluation.requests_per_s == rate


def test_a_chip_that_costs_nothing_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InstanceError) as failure:
        load_cluster(nodes(tmp_path / "free.yaml", 4, usd_per_hour=0))
    text = str(failure.value)
    assert "chips[0].usd_per_hour" in text
    assert "must be positive, got 0" in text


def _too_hard(rng: random.Random) -> cp_model.CpModel:
    """A model that no second's work proves."""
    model = cp_model.CpModel()
    held = [model.new_bool_var(f"x[{place}]") for place in range(200)]
    for _ in range(30):
        weights = [rng.randrange(100, 999) for _ in held]
        model.add(cp_model.LinearExpr.weighted_sum(held, weights) <= sum(weights) // 3)
    model.maximize(cp_model.LinearExpr.weighted_sum(held, [rng.randrange(100, 999) for _ in held]))
    return model


def test_a_limit_of_time_is_counted_in_work() -> None:
    """A model too hard for its limit is left at the same point every time."""
    ends = []
    for _ in range(2):
        solver, status = Clock().run(_too_hard(random.Random(1)), seed=0, limit_s=1.0)
        assert status == cp_model.FEASIBLE
        ends.append((solver.best_objective_bound, solver.response_proto.deterministic_time))
    assert ends[0] == ends[1]


def test_a_model_that_ran_out_of_time_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet that was not found in time is no fleet that does not exist; the time limit is blamed where it ended the model."""
    instance = asked(model="llama-3.1-8b", cluster="hgx-h100")
    ended, patient = Clock(0.5), Clock(1000.0)
    ended.run(_too_hard(random.Random(1)), seed=0, limit_s=100.0)
    assert ended.cut_short

    def late(*given: Any, **options: Any) -> FleetAnswer:
        patient.run(_too_hard(random.Random(1)), seed=0, limit_s=0.1)
        return FleetAnswer(None, 1.0)

    monkeypatch.setattr("solver.known.solve_fleet", late)
    with pytest.raises(NoFeasibleLayout, match="no layout was found") as failure:
        search(instance, clock=patient)
    assert patient.unsettled
    assert not failure.value.proven
    patient.cut_short = True
    with pytest.raises(NoLayoutInTime):
        search(instance, clock=patient)
    monkeypatch.setattr(
        "solver.known.solve_fleet", lambda *_, **__: FleetAnswer(None, float("inf"))
    )
    with pytest.raises(NoFeasibleLayout) as failure:
        search(instance, clock=patient)
    assert failure.value.proven


def test_threads_may_meet_anywhere() -> None:
    """Threads that change places at every moment go on from where any of them left the greedy run."""
    shares = np.random.default_rng(0).dirichlet(np.ones(64), size=8)
    spares = [spare for spare in range(0, 300, 3) for _ in range(2)]
    alone = LargestPieces(shares)
    wanted = [alone.largest(spare, 16).tolist() for spare in spares]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(2):
            shared = LargestPieces(shares)
            with side_by_side(8, len(spares)) as each:
                found = list(each(lambda spare: shared.largest(spare, 16).tolist(), spares))  # noqa: B023
            assert found == wanted
    finally:
        sys.setswitchinterval(interval)


def test_domains_of_other_prices_are_other_pools(tmp_path: Path) -> None:
    """Two domains alike but for what their chips cost are paid for each by its own prices."""
    first, second = (
        {**NODE, "chips": [{"chip": "h100", "count": 2, "usd_per_hour": usd}]} for usd in (1.0, 3.0)
    )
    path = tmp_path / "priced.yaml"
    path.write_text(
        yaml.safe_dump(
            {"name": "priced", "domains": [first, second], "scale_out": {"kind": "leaf-spine"}}
        )
    )
    classes = pool_classes(load_cluster(path))
    assert [one.prices for one in classes] == [(1.0, 1.0), (3.0, 3.0)]
    instance = asked(model="llama-3.1-8b", cluster=str(path), pay="whole")
    assert search(instance, clock=Clock(60)).evaluation.usd_per_hour == pytest.approx(8.0)


def test_more_spare_slots_than_experts_are_bounded() -> None:
    """Eight experts on 36 chips with slots of their own in every layer: more copies than experts."""
    instance = asked(model="mixtral-8x7b", cluster="nvl-36", layer_slots="any", slo={"tpot": 0.02})
    assert np.all(np.isfinite(Known(instance, Clock(), 0.01, 0, None).bounds.requests_per_s))
