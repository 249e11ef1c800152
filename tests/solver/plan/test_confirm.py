"""Plans that replays confirm: what misses counts for less, bounds stay, and what no plan confirms is said."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from costmodel.plan.hours import Column, Hours, Kind
from costmodel.plan.question import PlanModel, PlanQuestion, PlanUnits
from solver.clock import Clock
from solver.plan import day, replays
from solver.plan.confirm import confirm
from solver.plan.day import DayPlan, plan_day, plan_offers, planned_again

#: share of what groups carry by their steady state above which the stand-in of a replay misses
SHARE = 0.8


@pytest.fixture(scope="module")
def found() -> DayPlan:
    """Of six nodes with a few chips each, one may be lost; the busy hours need nearly all that is then left."""
    units = PlanUnits.model_validate({"cluster": "hgx-h100", "count": 6, "power_cap": "2 kW"})
    model = PlanModel(model="llama-3.1-8b", requests_per_s=(1.0,))
    asked = PlanQuestion(name="test", models=(model,), units=(units,), spare=1)
    one = plan_day(asked, clock=Clock(), gap=0.05).layouts[0].requests_per_s
    rates = tuple(share * one for share in (0.5, 0.9, 1.9, 2.9))
    model = model.model_copy(update={"requests_per_s": rates})
    return plan_day(asked.model_copy(update={"models": (model,)}), clock=Clock(), gap=0.05)


def of(found: DayPlan, units: int, share: float = 1.0) -> DayPlan:
    """The plan of so many units, at a share of the rates."""
    (model,), (kind,) = found.asked.models, found.asked.units
    assert model.requests_per_s is not None
    rates = tuple(share * rate for rate in model.requests_per_s)
    asked = found.asked.model_copy(
        update={
            "models": (model.model_copy(update={"requests_per_s": rates}),),
            "units": (kind.model_copy(update={"count": units}),),
        }
    )
    return plan_offers(asked, found.offers, clock=Clock())


@pytest.fixture
def stand_in(found: DayPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay that misses above a share of the steady rate."""
    one = found.layouts[0].requests_per_s

    def met(
        plan: object, asked: object, column: int, groups: replays.Left, rate: float, *_: object
    ) -> replays.Met:
        # of a group that keeps a part, half is left
        return 1.0, 0.1, rate <= SHARE * (groups[0] - 0.5 * (groups[1] >= 0)) * one

    monkeypatch.setattr(replays, "_met", met)


@pytest.mark.usefixtures("stand_in")
def test_the_plan_keeps_the_reserve_that_replays_ask_for(found: DayPlan) -> None:
    confirmed = confirm(found, clock=Clock())
    assert confirmed.replays
    assert confirmed.missed == confirmed.unknown == 0
    assert confirmed.cuts
    assert all(cut.requests_per_s < cut.missed for cut in confirmed.cuts)
    # as cheap as the plan of rates that are so much higher from the start
    higher = of(found, 6, 1 / SHARE)
    assert confirmed.plan.planned.judged.usd == pytest.approx(higher.planned.judged.usd)
    assert confirmed.plan.planned.judged.usd > confirmed.first_usd
    # bounds are those of the question as it was asked
    assert confirmed.plan.bound_usd == found.bound_usd
    assert confirmed.plan.planned.bound_usd == found.planned.bound_usd


@pytest.mark.usefixtures("stand_in")
def test_what_no_plan_confirms_is_said(found: DayPlan) -> None:
    few = of(found, 4)
    confirmed = confirm(few, clock=Clock())
    assert confirmed.missed
    assert "after the loss of any unit" in confirmed.reason
    assert confirmed.plan.planned.judged.usd >= confirmed.first_usd


def test_replays_that_the_time_does_not_allow_are_counted(found: DayPlan) -> None:
    clock = Clock()
    clock.stop()
    confirmed = confirm(found, clock=clock)
    assert (confirmed.replays, confirmed.cuts) == ((), ())
    assert confirmed.unknown == 4


def test_a_plan_that_all_replays_confirm_stays(found: DayPlan) -> None:
    easy = of(found, 6, 0.5)
    confirmed = confirm(easy, clock=Clock())
    assert confirmed.missed == confirmed.unknown == 0
    assert confirmed.plan is easy
    assert confirmed.cuts == ()


def keeping(found: DayPlan, share: float) -> DayPlan:
    """The plan at other rates, as if a node that loses a part of itself kept half of its replicas and were to keep so much of its rate."""
    (column,), (one,) = found.hours.columns, found.layouts
    rate = one.requests_per_s
    half = tuple(range(len(one.layout.replicas) // 2))
    own = replace(one, left_requests_per_s=share * rate, kept=(half,))
    keeps = replace(column, after_loss=own.after_loss(len(column.requests_per_s) - 1))
    demand = (tuple(asked * rate for asked in (0.4, 1.4, 1.4, 1.4)),)
    hours = replace(found.hours, demand=demand)
    return planned_again(replace(found, layouts=(own,), hours=hours), (keeps,), clock=Clock())


@pytest.mark.usefixtures("stand_in")
def test_what_groups_keep_after_a_loss_is_replayed_and_counts_for_what_replays_say(
    found: DayPlan,
) -> None:
    plan = keeping(found, 0.45)
    assert {row[0] for row in plan.planned.plan.groups} == {2}
    confirmed = confirm(plan, clock=Clock())
    assert confirmed.missed == confirmed.unknown == 0
    assert {one.part for one in confirmed.replays} == {0}
    assert [cut.groups for cut in confirmed.cuts if cut.after_loss] == [2]
    assert {row[0] for row in confirmed.plan.planned.plan.groups[1:]} == {3}


def test_a_part_that_the_evaluation_does_not_allow_counts_for_less(found: DayPlan) -> None:
    plan, rate = keeping(found, 1.0), found.layouts[0].requests_per_s
    for row in plan.planned.plan.groups:
        assert plan.hours.columns[0].after_loss[row[0]] <= (row[0] - 0.4) * rate


def test_more_groups_than_a_rule_allows_are_not_asked_for_what_they_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One group breaks a rule, and so two are ruled out, of which the same plan has some."""
    broken = SimpleNamespace(violations=["a rule"], requests_per_s=5.0)
    monkeypatch.setattr(day, "copies", lambda *_: (None, None))
    monkeypatch.setattr(day, "evaluate", lambda *_: broken)
    monkeypatch.setattr(day, "_kept", lambda *_: 4.0)
    column = Column("kept", 0, 0, 1, (0.0, 5.0, 10.0), after_loss=(0.0, 4.0, 9.0))
    hours = Hours(("m",), ((1.0, 1.0),), (Kind("k", 4, (0, 4), 1.0, (1.0, 1.0)),), (column,))
    layout: Any = SimpleNamespace(requests_per_s=5.0, steady_requests_per_s=5.0)
    asked: Any = SimpleNamespace(units=[SimpleNamespace(cluster="hgx-h200")])

    def plan(own: Hours) -> Any:
        most = len(own.columns[0].requests_per_s) - 1
        return SimpleNamespace(plan=SimpleNamespace(groups=((min(1, most),), (min(2, most),))))

    found, *_ = day._planned(asked, hours, (layout,), [0], plan)
    assert found.columns[0].requests_per_s == found.columns[0].after_loss == (0.0,)
