"""Layouts that keep a rate after the loss of a unit: what they keep, when they are searched, and plans and replays with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costmodel.evaluate import evaluate
from costmodel.plan.hours import Column, Hours, Kind
from costmodel.plan.question import PlanModel, PlanQuestion, PlanUnits
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Limits
from costmodel.replay.fleet import Tables
from costmodel.replay.replay import Course
from costmodel.replay.targets import Targets
from solver.clock import Clock
from solver.plan import surviving as under_test
from solver.plan import survivors
from solver.plan.bounds import most
from solver.plan.bounds.few import most_of_few
from solver.plan.bounds.most import asked_of
from solver.plan.by_parts.linear import Linear
from solver.plan.groups import Start, UnitLayout, less
from solver.plan.surviving import surviving
from solver.plan.survivors import plan_kept, with_survivors
from solver.plan.units import MORE, Offer
from solver.shapes.shapes import ROLES
from solver.traffic.fleets import Fleets
from solver.traffic.judge import meets_targets
from solver.traffic.losses import losses
from tests.solver.plan.bounds.test_after_loss import with_losses
from tests.solver.plan.enumerated_plans import best_of_all
from tests.solver.plan.test_units import long_prompts, with_trace


def like(chunk: int) -> Instance:
    """A question with so many prompt tokens in a pass."""
    limits = Limits(prefill_chunk_tokens=chunk)
    return resolve_instance(
        Scenario(model="llama-3.1-8b", cluster="hgx-h100", workload="chat", limits=limits)
    )


def test_after_any_loss_replays_of_what_is_left_meet_the_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = with_trace(tmp_path, "gpt-oss-120b", long_prompts(300, 150), 1.0, 0.02)
    units = PlanUnits(cluster="hgx-h100", count=3)
    found = surviving(
        model, units, 3, 0, Start("flash", 0.0), like(2048), clock=Clock(), gap=0.02, seed=0
    )
    assert found is not None
    assert 0.0 < found.left_requests_per_s <= found.requests_per_s
    assert found.after_loss(1) == (0.0, found.left_requests_per_s)
    assert evaluate(found.instance, found.layout).feasible
    # no more than what is proven of passes that take as many prompt tokens
    monkeypatch.setattr(most, "chunks_of", lambda *_: (2048,))
    assert found.left_requests_per_s <= most_of_few(model, units, 0, Clock(), 0)[1][3]
    asked, targets, course = asked_of(model, 0), Targets(1.0, 0.02), Course.of(found.instance)
    requests = asked.requests.at_rate(found.left_requests_per_s)
    after = list(losses(found.instance, found.layout, 8))
    assert sorted(map(len, found.kept)) == sorted(len(one.replicas) for one in after)
    for rest in (*after, *(less(found.layout, own) for own in found.kept)):
        assert (evaluate(found.instance, rest).requests_per_s or 0.0) >= found.left_requests_per_s
    for own in found.kept:
        rest = less(found.layout, own)
        tables = Tables(requests.longest)
        assert meets_targets(found.instance, rest, requests, targets, course, tables)


def test_prefill_counts_for_what_it_computes_of_unlike_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = with_trace(tmp_path, "qwen3-32b", long_prompts(300, 300), 1.0, 0.04)
    units = PlanUnits(cluster="hgx-h100", count=4)

    def kept() -> float:
        start = Start("flash", 0.0)
        found = surviving(model, units, 4, 0, start, like(2048), clock=Clock(), gap=0.02, seed=0)
        return 0.0 if found is None else found.left_requests_per_s

    by_these = kept()
    monkeypatch.setattr(Fleets, "measure", lambda *_: False)
    assert kept() < 0.8 * by_these


def test_a_prefill_replica_has_one_rank_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = with_trace(tmp_path, "deepseek-v3", long_prompts(300, 300), 2.0, 0.05)
    units = PlanUnits(cluster="hgx-h200", count=4)
    fleet, ranks = under_test._fleet, dict[bool, set[int]]()

    def looked_at(fleets: Fleets, ahead: float, **_: bool) -> None:
        for single in (True, False):
            found = fleet(fleets, ahead, single=single)
            assert found is not None
            table = fleets.search.shapes
            prefill = [item.shape for item, _ in found.stands if ROLES[item.role] == "prefill"]
            ranks[single] = {int(table.attention_dp[shape]) for shape in prefill}

    # by what a full queue computes at the mean, two ranks are as good as one
    monkeypatch.setattr(Fleets, "measure", lambda *_: False)
    monkeypatch.setattr(under_test, "_fleet", looked_at)
    surviving(model, units, 4, 0, Start("flash", 0.0), like(2048), clock=Clock(), gap=0.02, seed=0)
    assert ranks == {True: {1}, False: {2}}


@pytest.mark.parametrize("found", [True, False])
def test_more_prefill_is_tried_until_it_helps_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    """And ranks that share a replica where those that have one alone keep nothing."""
    model = with_trace(tmp_path, "gpt-oss-120b", long_prompts(300, 150), 1.0, 0.02)
    units = PlanUnits(cluster="hgx-h100", count=3)
    asked: list[tuple[float, bool]] = []
    fleet = under_test._fleet

    def counted(fleets: Any, ahead: float, *, single: bool) -> Any:
        asked.append((ahead, single))
        return fleet(fleets, ahead, single=single)

    def more_helps(self: Any, layout: Any) -> bool:
        self.best = (layout, []) if found else None
        return len(asked) % 3 != 0

    monkeypatch.setattr(under_test, "_fleet", counted)
    monkeypatch.setattr(under_test._Kept, "more_helps", more_helps)
    monkeypatch.setattr(under_test._Kept, "answer", lambda _: None)
    surviving(model, units, 3, 0, Start("flash", 0.0), like(2048), clock=Clock(), gap=0.02, seed=0)
    first = under_test._AHEAD[:3]
    assert list(first) == sorted(first)
    assert asked == [(ahead, single) for single in (True, False)[: 2 - found] for ahead in first]


def test_plans_begun_with_fewer_columns_are_the_best_of_all_and_fractions_bound_them() -> None:
    planned = 0
    for seed in range(60):
        one = with_losses(seed, keeps=True)
        best = None if one is None else best_of_all(*one)
        if one is None or best is None:
            continue
        planned += 1
        assert plan_kept(one[0], clock=Clock(), seed=0).judged.usd == pytest.approx(best, rel=1e-9)
        assert Linear(one[0]).solve(clock=Clock(), limit_s=10.0).bound_usd <= best * (1 + 1e-9)
    assert planned > 3


def test_a_plan_begins_with_the_best_layouts_that_keep_a_part_of_all_models_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    #: requests/s of a group, and what one keeps after a loss
    tables = (
        ("a", 0, 2.0, 0.0),
        ("a kept", 0, 2.0, 1.0),
        ("a dear", 0, 0.5, 0.1),
        ("b", 1, 2.0, 0.0),
        ("b kept", 1, 2.0, 1.0),
    )
    columns = tuple(
        Column(
            name, model, 0, 1, tuple(rate * n for n in range(9)),
            after_loss=(0.0, *(left + rate * n for n in range(8))) if left else (),
        )
        for name, model, rate, left in tables
    )  # fmt: skip
    kind = Kind("node", 8, (0, 0), 1.0, (1.0,))
    hours = Hours(("a", "b"), ((1.0,), (1.0,)), (kind,), columns, spare=1)
    asked: list[list[str]] = []
    plan_hours = survivors.plan_hours

    def planned(own: Hours, **words: Any) -> Any:
        asked.append([one.name for one in own.columns])
        return plan_hours(own, **words)

    monkeypatch.setattr(survivors, "plan_hours", planned)
    plan_kept(hours, clock=Clock(), seed=0)
    assert asked[-2:] == [["a", "a kept", "b", "b kept"], [name for name, *_ in tables]]
    assert asked[:3] == [["a", "b"], ["a", "b", "a kept"], ["a", "b", "a dear"]]


def layout(group: int, rate: float, left: float = 0.0) -> UnitLayout:
    """A layout of which only numbers matter."""
    limits = SimpleNamespace(prefill_chunk_tokens=2048)
    instance: Any = SimpleNamespace(scenario=SimpleNamespace(limits=limits))
    kept = ((0,),) if left else ()
    return UnitLayout(instance, instance, group, rate, rate, 60.0, 60.0, left, kept)


def question(tmp_path: Path, spare: int) -> tuple[PlanQuestion, Hours, Offer]:
    """Eight nodes of which two together carry what none does alone, and 24 requests/s in two of three hours."""
    model = with_trace(tmp_path, "llama-3.1-8b", long_prompts(20, 400), 5.0, 0.05)
    model = model.model_copy(update={"requests_per_s": (24.0, 24.0, 5.0)})
    units = PlanUnits(cluster="hgx-h100", count=8)
    asked = PlanQuestion(name="test", models=(model,), units=(units,), spare=spare)
    two = layout(2, 12.0)
    kinds = (Kind("node", 8, (0, 0), 1.0, (1.0,) * 3),)
    columns = (Column("pairs", 0, 0, 2, tuple(12.0 * n for n in range(5)), 60.0, 60.0),)
    hours = Hours(("m",), ((24.0, 24.0, 5.0),), kinds, columns, spare=spare)
    few = tuple(8.0 * n for n in range(9))
    left = tuple(8.0 * max(0, n - 1) for n in range(9))
    return asked, hours, Offer((two,), 8.0, (), "", few, left)


@pytest.mark.parametrize(
    ("spare", "saves", "searched"), [(1, True, [5]), (1, False, [5]), (0, True, []), (2, True, [])]
)
def test_as_many_units_are_searched_as_a_plan_is_likely_to_be_cheaper_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spare: int, saves: bool, searched: list[int]
) -> None:
    asked, hours, offer = question(tmp_path, spare)
    seen: list[int] = []

    def found(
        model: PlanModel, units: PlanUnits, number: int, *_: Any, **__: Any
    ) -> UnitLayout | None:
        seen.append(number)
        return layout(number, 30.0, 24.0) if saves else None

    monkeypatch.setattr(survivors, "surviving", found)
    more = with_survivors(
        asked, hours, {(0, 0): offer}, [0], clock=Clock(), gap=0.01, seed=0, on_progress=print
    )
    assert seen[: len(searched)] == searched
    assert bool(seen) == bool(searched)
    assert len(set(seen)) == len(seen) <= 2
    kept = [own for own in more[0, 0].layouts if own.kept]
    assert [own.group for own in kept] == (searched[:1] if saves else [])
    assert more[0, 0].layouts[0] is offer.layouts[0]


def test_what_a_layout_keeps_says_how_many_units_are_searched_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, hours, offer = question(tmp_path, 1)
    (pairs,), seen = hours.columns, list[int]()
    pairs = replace(pairs, requests_per_s=tuple(6.0 * n for n in range(7)))
    hours = replace(hours, columns=(pairs,), kinds=(Kind("node", 12, (0, 0), 1.0, (1.0,) * 3),))

    def found(model: PlanModel, units: PlanUnits, number: int, *_: Any, **__: Any) -> UnitLayout:
        seen.append(number)
        return layout(number, 6.0 * number, 0.55 * offer.left_of_few[number])

    monkeypatch.setattr(survivors, "surviving", found)
    more = with_survivors(
        asked, hours, {(0, 0): offer}, [0], clock=Clock(), gap=0.01, seed=0, on_progress=print
    )
    # five of eight units are likely to keep 24 requests/s of 32, by what they do keep it takes seven
    assert seen == [5, 7]
    assert [own.group for own in more[0, 0].layouts if own.kept] == [5, 7]


def test_where_one_unit_carries_as_much_as_several_none_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, hours, offer = question(tmp_path, 1)
    monkeypatch.setattr(survivors, "surviving", lambda *_, **__: pytest.fail("searched"))
    single = replace(
        offer, layouts=(layout(1, 5.9), *offer.layouts), most_requests_per_s=5.9 * MORE
    )
    more = with_survivors(
        asked, hours, {(0, 0): single}, [0], clock=Clock(), gap=0.01, seed=0, on_progress=print
    )
    assert more == {(0, 0): single}


@pytest.mark.parametrize(
    ("rates", "kept"),
    [((12.5, 18.0, 24.2), [2]), ((12.0, 18.6, 24.4), [3]), ((12.0, 18.0, 24.0), [])],
)
def test_a_few_units_are_laid_out_together_where_each_then_carries_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rates: tuple[float, ...], kept: list[int]
) -> None:
    asked, hours, offer = question(tmp_path, 1)
    single = replace(offer, layouts=(layout(1, 5.9), *offer.layouts))
    seen: list[int] = []

    def found(model: PlanModel, units: PlanUnits, number: int, *_: Any, **__: Any) -> UnitLayout:
        seen.append(number)
        return layout(number, rates[number - 2], 5.0)

    monkeypatch.setattr(survivors, "surviving", found)
    more = with_survivors(
        asked, hours, {(0, 0): single}, [0], clock=Clock(), gap=0.01, seed=0, on_progress=print
    )
    assert seen == [2, 3, 4]
    assert [own.group for own in more[0, 0].layouts if own.kept] == kept
