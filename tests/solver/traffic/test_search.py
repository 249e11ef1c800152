"""Layouts for traffic: replays of fresh requests meet the targets, bounds hold, losses are survived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest

from costmodel.layout.layout import Layout, Role
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.description import Arrivals, BothLengths, Description, Lengths
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Workload
from costmodel.replay.replay import replay
from costmodel.replay.targets import Judged, Targets, judged
from solver.answer import SearchResult
from solver.clock import Clock
from solver.search import search
from solver.traffic import found as traffic_found
from solver.traffic.asked import Asked, questions
from solver.traffic.fleets import _spread_alike
from solver.traffic.judge import Judge, Verdict
from solver.traffic.loads import hurries
from solver.traffic.losses import losses, units
from solver.traffic.search import search_traffic
from solver.traffic.ways import of_chunk
from tests.solver.traffic.few_draws import few_draws
from topology.errors import InstanceError, NoFeasibleLayout

TARGETS = Targets(1.0, 0.03, 0.99)
TRAFFIC = Description(
    arrivals=Arrivals(rate=60),
    lengths=BothLengths(input=Lengths(mean=1000, std=800), output=Lengths(mean=150, std=100)),
)


def scenario(cluster: str = "hgx-h100") -> Scenario:
    workload = Workload(input_tokens=10, output_tokens=10)
    return Scenario(model="llama-3.1-8b", cluster=cluster, workload=workload)


def requests(seed: int = 1, rate: float = 60.0, count: int = 1500) -> Requests:
    return TRAFFIC.draw(count, seed).at_rate(rate)


def solved(cluster: str, asked: Asked, gap: float = 0.02) -> SearchResult:
    return search_traffic(scenario(cluster), asked, clock=Clock(), gap=gap)


@pytest.fixture(scope="module")
def plain() -> SearchResult:
    """The answer for the requests as they are."""
    return solved("hgx-h100", Asked(requests(), TARGETS))


def test_fresh_requests_meet_the_targets_and_no_bound_is_beaten(plain: SearchResult) -> None:
    found = plain
    assert found.traffic is not None
    assert found.instance is not None
    cost = found.evaluation.usd_per_m_output_tokens
    assert cost is not None
    assert found.certificate.bound_usd_per_m_output_tokens <= cost * (1 + 1e-9)
    assert found.certificate.gap == pytest.approx(
        cost / found.certificate.bound_usd_per_m_output_tokens - 1
    )
    assert found.traffic.mean_usd_per_hour <= found.traffic.usd_per_hour
    met = [
        judged(replay(found.instance, found.layout, requests(seed, count=3000)), TARGETS).meets
        for seed in range(50, 58)
    ]
    assert sum(met) >= 7


@few_draws()
def test_requests_of_one_length_are_searched_once_at_their_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The steady answer at the mean lengths is that at the spread of lengths; large clusters of TPUs have no time for both."""
    alike = requests(count=400)
    given, asked = np.full(400, 1000), np.full(400, 150)
    alike = replace(alike, input_tokens=given, output_tokens=asked)
    monkeypatch.delattr(traffic_found, "search")
    found = solved("hgx-h100", Asked(alike, TARGETS), gap=0.5)
    assert found.traffic is not None
    assert found.traffic.mean_usd_per_hour <= found.traffic.usd_per_hour


def test_an_answer_is_confirmed_on_draws_by_which_it_was_not_chosen(
    plain: SearchResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer fails one of them: what stands instead has passed them all."""
    asked = Asked(requests(), TARGETS)
    assert plain.traffic is not None
    assert plain.traffic.confirmed
    assert plain.traffic.runs == len(asked.runs(0)) + len(asked.fresh(0))
    judge, failed = Judge.confirm, list[object]()

    def strict(self: Judge, layout: Layout, over: Callable[[], bool]) -> Verdict:
        found = judge(self, layout, over)
        if layout == plain.layout:
            failed.append(layout)
            return replace(found, runs=(*found.runs, Judged(0.5, 0.5, 0.5, TARGETS)))
        return found

    monkeypatch.setattr(Judge, "confirm", strict)
    other = solved("hgx-h100", asked)
    assert failed
    assert other.traffic is not None
    assert other.layout != plain.layout
    assert other.traffic.confirmed
    assert other.traffic.usd_per_hour >= plain.traffic.usd_per_hour


def test_time_that_ends_before_all_confirming_draws_is_said() -> None:
    asked = Asked(requests(rate=60), TARGETS)
    instance = questions(scenario(), asked).spread
    layout = fleet(instance, ["mixed"] * 6)
    judge = Judge(instance, asked, seed=0)
    chosen = judge.judge(layout)
    assert chosen.meets
    assert not chosen.confirmed
    cut = judge.confirm(layout, lambda: True)
    assert (len(cut.runs), cut.confirmed) == (len(chosen.runs), False)
    whole = judge.confirm(layout, lambda: False)
    assert (len(whole.runs), whole.confirmed) == (len(chosen.runs) + len(asked.fresh(0)), True)


@few_draws()
def test_what_is_kept_while_the_search_runs_has_been_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steady searches leave layouts of their own behind: no answers for traffic."""
    clock, kept = Clock(), list[SearchResult | None]()

    def steady(*asked: Any, **how: Any) -> SearchResult:
        found = search(*asked, **how)
        kept.append(clock.kept())
        return found

    monkeypatch.setattr(traffic_found, "search", steady)
    found = search_traffic(scenario(), Asked(requests(), TARGETS), clock=clock, gap=0.5)
    assert kept == [None]
    last = clock.kept()
    assert last.layout == found.layout
    assert last.traffic is not None


def test_a_draw_that_an_answer_failed_chooses_from_then_on() -> None:
    """It comes right after the traffic as it is; another one confirms in its place."""
    asked = Asked(requests(rate=120), TARGETS)
    instance = questions(scenario(), asked).spread
    judge = Judge(instance, asked, seed=0)
    layout = fleet(instance, ["mixed"] * 8)
    assert judge.judge(layout).meets
    # the same number of requests, all at once
    flood = replace(asked.requests, arrival_s=np.zeros(len(asked.requests)))
    kept = judge._fresh
    judge._fresh = [kept[0], flood, *kept[2:]]
    told = judge.confirm(layout, lambda: False)
    assert not told.meets
    assert judge.runs[1] is flood
    assert len(judge._fresh) == len(kept)
    assert not any(one is flood for one in judge._fresh)
    assert not judge.judge(layout).meets


def test_quicker_replicas_come_first_where_a_prompt_leaves_little_time_to_wait() -> None:
    assert hurries(Targets(2.0, None), 0.9) == [1.0, 0.6, 0.35, 0.2]
    assert hurries(Targets(2.0, None), 1.3) == [0.6, 1.0, 0.35, 0.2]
    assert hurries(Targets(2.0, None), 90.0) == [0.2, 1.0, 0.6, 0.35]
    assert hurries(Targets(None, 0.05), 1.3) == [1.0]


def test_prompts_that_tell_a_capacity_are_spread_as_all_are() -> None:
    """Few prompts hold most of the work: a draw of as many misses it or takes too much."""
    rng = np.random.default_rng(3)
    tokens = np.where(rng.random(20_000) < 0.003, 100_000, 200).astype(np.int64)
    for seed in range(5):
        some = tokens[_spread_alike(tokens, 800, seed)]
        assert some.mean() == pytest.approx(tokens.mean(), rel=0.25)
        assert np.array_equal(np.sort(some), np.sort(tokens[_spread_alike(tokens, 800, 99)]))
    assert len(set(_spread_alike(tokens, 800, 0))) == 800
    assert sorted(_spread_alike(tokens[:50], 800, 0)) == list(range(50))


def fleet(instance: Instance, roles: Sequence[Role]) -> Layout:
    """Replicas of one chip each, with many slots."""
    batches: dict[Role, int] = {"prefill": 8, "decode": 320, "mixed": 110}
    parts = [
        plain_layout(instance, role, tp=1, batch=batches[role], first_chip=chip)
        for chip, role in enumerate(roles)
    ]
    return parts[0].model_copy(
        update={"replicas": tuple(one for part in parts for one in part.replicas)}
    )


def test_fewer_chips_than_the_bound_says_meet_no_targets() -> None:
    """Every mix of replicas of one chip, on a chip less, under traffic that goes on."""
    asked = Asked(requests(rate=140), TARGETS)
    own = questions(scenario(), asked)
    bound = search(own.every, clock=Clock(), gap=0.001)
    chips = own.every.cluster.chips
    price = chips[0].chip.usd_per_hour
    rate = own.every.scenario.rate
    assert rate is not None
    usd = bound.certificate.bound_usd_per_m_output_tokens / 1e6 * rate * 3600
    least = ceil(usd * own.every.workload.output_tokens / price - 1e-6)
    assert 3 <= least <= len(chips)
    long = requests(7, 140, 9000)
    mixes: list[list[Role]] = [["mixed"] * (least - 1)]
    for prefill in range(1, least - 1):
        mixes.append(["prefill"] * prefill + ["decode"] * (least - 1 - prefill))
    for roles in mixes:
        met = replay(own.spread, fleet(own.spread, roles), long)
        assert not judged(met, TARGETS).meets, roles


@few_draws()
def test_a_layout_that_replays_refuse_is_not_the_answer() -> None:
    """Bursts: the cheapest layout that carries the mean rate lets too many first tokens come late."""
    bursts = TRAFFIC.model_copy(update={"arrivals": Arrivals(process="gamma", cv=4, rate=40)})
    asked = Asked(bursts.draw(1500, 2), Targets(0.5, 0.03, 0.99))
    found = solved("hgx-h100", asked)
    assert found.traffic is not None
    own = of_chunk(scenario(), found.traffic.prefill_chunk_tokens)
    assert found.instance is not None
    assert found.instance.digest == questions(own, asked).spread.digest
    assert found.traffic.usd_per_hour > found.traffic.spread_usd_per_hour
    assert judged(found.traffic.met, asked.targets).meets


@few_draws()
def test_the_peak_is_carried_and_paid_at_the_mean(plain: SearchResult) -> None:
    one, two = plain, solved("hgx-h100", Asked(requests(), TARGETS, peak=2.0))
    assert one.traffic is not None
    assert two.traffic is not None
    assert two.traffic.met.rate == pytest.approx(120, rel=0.01)
    assert two.traffic.usd_per_hour >= one.traffic.usd_per_hour
    assert two.traffic.usd_per_m_output_tokens == pytest.approx(
        two.traffic.usd_per_hour / 3600 / 60 / requests().output_tokens.mean() * 1e6, rel=1e-3
    )


@few_draws()
def test_any_node_may_be_lost() -> None:
    asked = Asked(requests(), TARGETS, spare="node")
    found = solved("hgx-h100@2", asked, gap=0.5)
    assert found.instance is not None
    assert found.traffic is not None
    left = list(losses(found.instance, found.layout, "node"))
    assert left
    assert found.traffic.losses == len(left)
    for rest in left:
        assert judged(replay(found.instance, rest, requests(9)), TARGETS).meets
    # what is left without either node has to cost as much as any layout
    own = search(questions(scenario("hgx-h100@2"), asked).every, clock=Clock(), gap=0.5)
    bound = own.certificate.bound_usd_per_m_output_tokens
    assert found.certificate.bound_usd_per_m_output_tokens == pytest.approx(2 * bound)


def test_losses_are_of_hosts_domains_and_chips() -> None:
    rack = questions(scenario("gb200-nvl72"), Asked(requests(), TARGETS)).spread
    assert {len(chips) for chips in units(rack, "node")} == {4}
    assert {len(chips) for chips in units(rack, "rack")} == {72}
    assert len(units(rack, 10)) == 8


def test_what_no_layout_carries_is_proven_and_what_none_was_found_for_is_not() -> None:
    with pytest.raises(NoFeasibleLayout) as proven:
        solved("hgx-h100", Asked(requests(rate=20_000), TARGETS))
    assert proven.value.proven
    # requests of so many seconds come at once
    for seconds, told in ((5.0, "none meets the percentiles"), (10.0, "whatever the order")):
        came_s = (requests().arrival_s / seconds).round() * seconds + 1e-3
        with pytest.raises(NoFeasibleLayout, match=told) as none:
            solved("hgx-h100", Asked(replace(requests(), arrival_s=came_s), TARGETS))
        assert none.value.proven == (seconds == 10.0)


def test_what_is_not_searched_is_refused() -> None:
    drafts = scenario().model_copy(update={"engine": "any"})
    with pytest.raises(InstanceError, match="name one engine"):
        questions(drafts, Asked(requests(), TARGETS))
