"""Units that models share: the best plan is that of trying all, and the bound over any parts is not above it."""

from __future__ import annotations

import random
from dataclasses import replace
from math import prod
from typing import Any

import pytest

from costmodel.plan.hours import HOUR_S, Column, Decision, Hours, Kind
from costmodel.plan.judge import judge
from solver.clock import Clock
from solver.plan import survivors
from solver.plan.bounds.any_layouts import any_parts, bound_usd
from solver.plan.first import First, first_plan
from solver.plan.hours import plan_hours
from tests.solver.plan.enumerated_plans import HOURS, Rows, alone, best_of_all
from topology.errors import NoFeasibleLayout

SAME = 1e-9
#: chips of a unit
CHIPS = 4


def drawn(seed: int) -> tuple[Hours, Rows, list[list[float]]]:
    """Three hours, two models, units of four chips that one or both have; what a unit carries at most, by model and kind."""
    rng = random.Random(f"shared {seed}")
    while True:
        units = rng.choice([1, 2, 2, 3])
        price, rented = float(rng.randint(4, 9)), float(rng.randint(2, 6))
        kind = Kind("node", units, (0, rng.choice([0, units])), rented, (price, price, price / 2))
        start, drain = rng.choice([600.0, 2400.0, HOUR_S]), rng.choice([300.0, 1800.0])
        least = rng.choice([1, 1, 2])
        most = [[float(rng.randint(6, 14))] for _ in range(2)]

        def column(
            model: int, chips: int, shared: str, group: int,
            most: list[list[float]] = most, units: int = units, start: float = start, drain: float = drain, least: int = least,
            part: float = rng.choice([1.0, 0.9]),
        ) -> Column:  # fmt: skip
            one = most[model][0] * chips / CHIPS * (part if shared else 1.0)
            table = tuple(n * one for n in range(units + 1))
            return Column(f"{model} {chips} {shared}", model, 0, group, table, start, drain, least, shared=shared)  # fmt: skip

        columns = [column(model, CHIPS, "", 1) for model in range(2) if rng.random() < 0.8]
        for chips in rng.sample(range(1, CHIPS), rng.choice([1, 1, 2])):
            way = f"{chips} and {CHIPS - chips}"
            columns += [column(0, chips, way, 1), column(1, CHIPS - chips, way, 0)]
        demand = tuple(tuple(float(rng.randint(0, 6)) for _ in range(HOURS)) for _ in range(2))
        asked = Hours(
            ("one", "other"), demand, (kind,), tuple(columns), spare=rng.choice([0, 0, 1])
        )
        rows = [alone(asked, hour) for hour in range(HOURS)]
        if prod(len(own) for own in rows) <= 400:
            return asked, rows, most


@pytest.mark.parametrize("block", range(6))
def test_plans_of_shared_units_are_those_of_trying_all_and_not_below_the_bound(block: int) -> None:
    plans = shared = 0
    for seed in range(block * 20, block * 20 + 20):
        asked, rows, most = drawn(seed)
        best = best_of_all(asked, rows)
        few = {(m, 0): (0.0,) for m in range(2)}
        parted = any_parts(asked, most, [[1 / CHIPS] * CHIPS], few=few)
        if best is None:
            with pytest.raises(NoFeasibleLayout):
                plan_hours(asked, clock=Clock())
            continue
        found = plan_hours(asked, clock=Clock())
        assert found.judged.usd == pytest.approx(best, rel=SAME)
        assert bound_usd(parted, clock=Clock(), parts=[CHIPS]) <= best * (1 + SAME)
        plans += 1
        shared += any(
            groups
            for row in found.plan.groups
            for one, groups in zip(asked.columns, row, strict=True)
            if one.shared
        )
    assert plans
    assert shared


def two(spare: int = 0, units: int = 2) -> Hours:
    """A unit carries 8 requests/s of either model, or 4 of both; each asks for 3."""
    kind = Kind("node", units, (0, 0), 1.0, (5.0, 5.0))
    columns = [
        Column(f"whole {m}", m, 0, 1, tuple(8.0 * n for n in range(units + 1)), 60.0, 60.0)
        for m in range(2)
    ] + [
        Column(f"half {m}", m, 0, 1 - m, tuple(4.0 * n for n in range(units + 1)), 60.0, 60.0, shared="halves")
        for m in range(2)
    ]  # fmt: skip
    return Hours(("one", "other"), ((3.0, 3.0), (3.0, 3.0)), (kind,), tuple(columns), spare=spare)


def test_one_unit_serves_two_models_that_need_a_part_of_it_each() -> None:
    found = plan_hours(two(), clock=Clock())
    assert found.judged.usd == 2 * 5.0
    assert found.plan.groups == ((0, 0, 1, 1),) * 2
    # a lost unit takes something from both: two of them, where apart it were four
    lost = plan_hours(two(spare=1), clock=Clock())
    assert lost.judged.usd == 2 * 10.0
    assert lost.plan.groups == ((0, 0, 2, 2),) * 2
    # no fewer units than a loss takes and hold what is left: chips thin on all four would lose little with one
    four = replace(two(spare=1, units=4), demand=((1.0, 1.0),) * 2)
    parted = any_parts(
        four, [[8.0], [8.0]], [[0.25] * CHIPS], few={(m, 0): (0.0,) for m in range(2)}
    )
    assert bound_usd(parted, clock=Clock(), parts=[CHIPS]) == pytest.approx(
        plan_hours(four, clock=Clock()).judged.usd
    )
    # a plan to begin with is that of the units apart
    assert first_plan(two(), clock=Clock(), seed=0) == First(None, 0.0)


def test_a_plan_of_shared_units_begins_with_the_best_of_units_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A question of many columns may end before a plan that is as cheap as that without the shared ones."""
    begun: list[Decision | None] = []

    def recorded(asked: Hours, **more: Any) -> Any:
        begun.append(more.get("begun"))
        return plan_hours(asked, **more)

    monkeypatch.setattr(survivors, "plan_hours", recorded)
    assert survivors.plan_kept(two(), clock=Clock(), seed=0).judged.usd == 2 * 5.0
    assert begun == [None, Decision((0,), ((1, 1, 0, 0),) * 2)]


def test_the_judge_refuses_parts_of_a_unit_without_the_others() -> None:
    said = judge(two(), Decision((0,), ((0, 1, 1, 0), (0, 1, 1, 0)))).violations
    assert said[0] == (
        "hour 0: groups on the same units serve together, but 1 of half 0, 0 of half 1 do"
    )


def test_what_parts_of_units_carry_at_most() -> None:
    kind = Kind("a", 2, (0, 2), 1.0, (1.0,))
    asked = Hours(("m",), ((1.0,),), (kind,), ())
    even = [[0.25] * CHIPS]
    (one,) = any_parts(asked, [[8.0]], even, few={(0, 0): (0.0,)}).columns
    assert one.requests_per_s == tuple(2.0 * chips for chips in range(9))
    # with a unit, the fewest chips that are lost are half of them
    assert one.after_loss == (0.0, 0.0, 2.0, 2.0, 4.0, 4.0, 6.0, 6.0, 8.0)
    # what one unit carries no four chips exceed
    (one,) = any_parts(asked, [[8.0]], even, few={(0, 0): (0.0, 5.0)}).columns
    assert one.requests_per_s == (0.0, 2.0, 4.0, 5.0, 5.0, 10.0, 12.0, 14.0, 16.0)
    # a dear chip may carry as much as it costs
    (one,) = any_parts(asked, [[8.0]], [[0.1, 0.1, 0.1, 0.7]], few={(0, 0): (0.0,)}).columns
    assert one.requests_per_s[:3] == pytest.approx((0.0, 5.6, 11.2))
    # nothing is known of unlike chips but what they cost
    (one,) = any_parts(asked, [[8.0]], even, few={(0, 0): ()}).columns
    assert one.requests_per_s == tuple(2.0 * chips for chips in range(9))
    # what is not known is as much as is asked for
    unknown = replace(asked, demand=((3.0,),))
    (one,) = any_parts(unknown, [[float("inf")]], even, few={(0, 0): (0.0,)}).columns
    assert one.requests_per_s[-1] == pytest.approx(6.0)
