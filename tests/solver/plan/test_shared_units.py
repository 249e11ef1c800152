"""What a plan is compared with, and what units carry where models share them in any parts: by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.plan.beside import autoscaled, constant
from benchmarks.plan.day import shared_at_most
from costmodel.plan.hours import Column, Decision, Hours, Kind
from costmodel.plan.judge import judge
from costmodel.plan.question import PlanModel, PlanQuestion, PlanUnits
from solver.clock import Clock
from solver.plan.hours import plan_hours
from tests.solver.plan.bounds.test_any_parts import two
from topology.errors import NoFeasibleLayout


def question(spare: int, *rates: float) -> PlanQuestion:
    models = tuple(
        PlanModel(model="llama-3.1-8b", name=f"m{n}", requests_per_s=(rate, rate / 2))
        for n, rate in enumerate(rates)
    )
    units = (PlanUnits(cluster="hgx-h100", count=4), PlanUnits(cluster="hgx-h200", count=2))
    return PlanQuestion(name="p", models=models, units=units, spare=spare)


@pytest.mark.parametrize(
    ("spare", "carried", "times"),
    [
        # 4 units of one kind: each model has two of them in shares
        (0, [[10.0, 0.0], [10.0, 0.0]], 1.0),
        # three of four are left: 15 for each of 20
        (1, [[10.0, 0.0], [10.0, 0.0]], 0.75),
        # two more units, of which one may be lost: 3/4 of 20 + 5 or 20 + 1/2 of 5, for each
        (1, [[10.0, 5.0], [10.0, 5.0]], 1.0),
    ],
)
def test_shares_of_units_after_a_loss(spare: int, carried: list[list[float]], times: float) -> None:
    assert shared_at_most(question(spare, 20.0, 20.0), carried) == pytest.approx(times)


def test_each_model_on_the_units_that_suit_it() -> None:
    carried = [[10.0, 1.0], [1.0, 20.0]]
    assert shared_at_most(question(0, 40.0, 40.0), carried) == pytest.approx(1.0)
    # a unit of the second kind may be lost: what the first kind adds is little
    assert 0.5 < shared_at_most(question(1, 30.0, 40.0), carried) < 0.6


def test_an_autoscaler_goes_on_to_other_units_where_the_first_are_all_taken() -> None:
    kinds = (Kind("rack", 2, (0, 0), 1.0, (1.0, 1.0)), Kind("node", 4, (0, 0), 1.0, (1.0, 1.0)))
    columns = (
        Column("rack", 0, 0, 1, (0.0, 10.0, 20.0)),
        Column("node", 0, 1, 1, (0.0, 2.0, 4.0, 6.0, 8.0)),
    )
    steady = Hours(("a",), ((11.5, 11.5),), kinds, columns, spare=1)
    # without a rack, 11.5 requests/s take another and a node
    assert constant(steady).usd == 2 * (2 + 1)
    assert autoscaled(steady).usd == 2 * (2 + 1)
    # the hour after one of 4 requests/s may be one of 11.5: what was taken away is missing then
    assert autoscaled(replace(steady, demand=((11.5, 4.0),))).usd == 2 * (2 + 1)
    assert constant(replace(steady, demand=((11.5, 4.0),))).usd == 2 * (2 + 1)
    assert autoscaled(replace(steady, demand=((11.5, 18.5),))).usd is None


@pytest.mark.parametrize("spare", [0, 1])
@pytest.mark.parametrize("units", [4, 600])
def test_a_model_that_nothing_runs_is_missed_in_every_hour_it_is_asked_for(
    spare: int, units: int
) -> None:
    """By the judge and by both searches, also where a loss takes no unit from it; one that nobody asks for is no matter."""
    kinds = (Kind("a", units, (0, units), 1.0, (1.0, 1.0)),)
    columns = (Column("m on a", 0, 0, 1, tuple(map(float, range(units + 1)))),)
    asked = Hours(("m", "n"), ((1.0, 1.0), (0.0, 2.0)), kinds, columns, spare=spare)
    plan = Decision((1 + spare,), ((1 + spare,),) * 2)
    (missed,) = judge(asked, plan).violations
    assert missed == "hour 1: n is left with 0 requests/s after a loss, asked are 2"
    with pytest.raises(NoFeasibleLayout, match=r"hour 1 \(m 1, n 2 requests/s\) is more than all"):
        plan_hours(asked, clock=Clock())
    asleep = replace(asked, demand=((1.0, 1.0), (0.0, 0.0)))
    assert judge(asleep, plan).violations == ()
    assert plan_hours(asleep, clock=Clock()).plan.groups == plan.groups


def test_an_autoscaler_adds_no_groups_that_share_units() -> None:
    """Groups of one model alone, on units of their own: the others on a shared unit would come for nothing."""
    assert autoscaled(two()).usd == 2 * 2 * 5.0
    assert constant(two()).usd == 2 * 5.0
