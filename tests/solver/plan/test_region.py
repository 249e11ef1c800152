"""Plans by parts: bounds below every plan, tiny regions as enumeration finds them, larger ones near their bound."""

from __future__ import annotations

import random
from dataclasses import replace
from math import sin, tau

import numpy as np
import pytest

from costmodel.plan.hours import Column, Decision, Hours, Kind
from costmodel.plan.judge import judge
from solver.clock import Clock
from solver.plan.by_parts import region as under_test
from solver.plan.by_parts.linear import Linear
from solver.plan.by_parts.pools import pooled
from solver.plan.by_parts.region import plan_region, region_bound_usd
from solver.plan.by_parts.sites import _runs, dealt
from tests.solver.plan.enumerated_plans import best_of_all, tiny, tiny_region
from topology.errors import NoFeasibleLayout

SAME = 1e-9


@pytest.mark.parametrize("block", range(3))
def test_tiny_regions_are_planned_as_trying_all_plans_does(block: int) -> None:
    planned = 0
    for seed in range(25 * block, 25 * block + 25):
        asked, rows = tiny_region(seed)
        best = best_of_all(asked, rows)
        if best is None:
            with pytest.raises(NoFeasibleLayout):
                plan_region(asked, clock=Clock())
            continue
        found = plan_region(asked, clock=Clock())
        assert found.judged.usd == pytest.approx(best, rel=SAME)
        assert found.bound_usd <= best * (1 + SAME)
        planned += 1
    assert planned > 4


@pytest.mark.parametrize("draw", [tiny, tiny_region])
def test_parts_give_valid_plans_and_bounds_that_no_plan_beats(
    draw: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "WHOLE", 0)
    planned = wrong = 0
    for seed in range(100, 140):
        asked, rows = draw(seed)  # type: ignore[operator]
        best = best_of_all(asked, rows)
        try:
            found = plan_region(asked, clock=Clock())
        except NoFeasibleLayout as error:
            wrong += best is not None and error.proven
            continue
        assert best is not None
        assert found.bound_usd <= best * (1 + SAME)
        assert found.judged.usd >= best * (1 - SAME)
        assert not judge(asked, found.plan).violations
        planned += 1
    assert planned > 5
    assert not wrong


def many(sites: int, models: int, hours: int, seed: int = 0, spare: int = 0) -> Hours:
    """Sites of three kinds and of different sizes, models whose days are shifted."""
    rng = random.Random(seed)
    prices = (10.0, 12.0, 90.0)
    kinds = [
        Kind(f"site {s}", rng.randint(4, 40), (0, 0), prices[s % 3], (prices[s % 3],) * hours)
        for s in range(sites)
    ]
    worth = [[rng.uniform(0.7, 1.3) * price for price in prices] for _ in range(models)]
    columns = [
        Column(
            f"model {m} in {s}", m, s, 1, tuple(n * worth[m][s % 3] for n in range(kinds[s].units + 1)),
            600.0, 60.0, 2,
        )
        for m in range(models) for s in range(sites)
    ]  # fmt: skip
    demand = []
    for m in range(models):
        own = sum(one.requests_per_s[-1] for one in columns if one.model == m) / models
        phase = rng.uniform(0, hours)
        demand.append(
            tuple(0.4 * own * (1 + 0.5 * sin(tau * (h - phase) / 24)) for h in range(hours))
        )
    names = tuple(f"model {m}" for m in range(models))
    return Hours(names, tuple(demand), tuple(kinds), tuple(columns), spare)


def test_a_region_is_planned_near_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "WHOLE", 0)
    asked = many(12, 4, 24)
    found = plan_region(asked, clock=Clock())
    assert not judge(asked, found.plan).violations
    assert 0 <= found.gap < 0.05


def test_a_region_is_carried_after_the_loss_of_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "WHOLE", 0)
    asked = many(12, 4, 24, spare=1)
    found = plan_region(asked, clock=Clock())
    assert not judge(asked, found.plan).violations
    assert judge(asked, plan_region(replace(asked, spare=0), clock=Clock()).plan).violations


def test_the_bound_does_not_trust_the_linear_solver() -> None:
    """Any dual values prove something below the optimum; those of another question prove less."""
    asked = many(6, 3, 6)
    own = Linear(pooled(asked)[0])
    right = own.solve(clock=Clock(), limit_s=60.0).bound_usd
    rng = np.random.default_rng(0)
    for scale in (0.0, 0.5, 0.9, 1.5):
        wrong = own.proven(rng.uniform(0.0, 30.0, own.rows.number) * scale)
        assert wrong <= right * (1 + SAME)
    assert own.proven(np.zeros(own.rows.number)) <= 0.0


def test_equal_places_are_one_pool_and_unequal_ones_are_not() -> None:
    asked = many(6, 2, 4)
    together, pools = pooled(asked)
    assert sorted(sorted(pool.kinds) for pool in pools) == [[0, 3], [1, 4], [2, 5]]
    assert sum(kind.units for kind in together.kinds) == sum(kind.units for kind in asked.kinds)
    dearer = replace(asked.kinds[3], on_demand_usd_per_hour=(11.0,) * 4)
    _, pools = pooled(replace(asked, kinds=(*asked.kinds[:3], dearer, *asked.kinds[4:])))
    assert len(pools) == 4
    # rates that are not in proportion are no rates of a pool
    less = replace(asked.columns[0], requests_per_s=(*asked.columns[0].requests_per_s[:-1], asked.columns[0].requests_per_s[-2]))  # fmt: skip
    assert len(pooled(replace(asked, columns=(less, *asked.columns[1:])))[1]) == 4


def test_what_finishes_in_a_cluster_is_loaded_again_there() -> None:
    """Two places of one unit: a model's last unit and the next one's first are exchanged in one of them."""
    kinds = tuple(Kind(f"place {n}", 1, (0, 0), 1.0, (1.0,) * 8) for n in range(2))
    columns = tuple(
        Column(f"{m} in {n}", m, n, 1, (0.0, 1.0), 600.0, 60.0) for m in range(2) for n in range(2)
    )
    asked = Hours(("a", "b"), ((1.0,) * 2 + (0.0,) * 6, (0.0,) * 3 + (1.0,) * 2 + (0.0,) * 3), kinds, columns)  # fmt: skip
    together, pools = pooled(asked)
    groups = np.zeros((8, 2), np.int64)
    groups[:2, 0] = groups[3:5, 1] = 1
    plan = Decision(
        (0, 0), tuple(map(tuple, dealt(asked, pools, together, groups, (0,))[0].tolist()))
    )
    judged = judge(asked, plan)
    assert not judged.violations
    assert judged.usd == 7.0  # load, 2 hours, exchange, 2 hours, finish
    with pytest.raises(NoFeasibleLayout, match="no cluster has room"):
        dealt(asked, pools, together, np.full((8, 2), 3, np.int64), (0,))


def test_the_bound_of_any_layouts_is_that_of_the_relaxation() -> None:
    asked = many(6, 3, 6)
    assert region_bound_usd(asked, clock=Clock()) == pytest.approx(
        Linear(pooled(asked)[0]).solve(clock=Clock(), limit_s=60.0).bound_usd
    )
    short = tuple(tuple(10 * rate for rate in own) for own in asked.demand)
    with pytest.raises(NoFeasibleLayout, match="parts of units"):
        region_bound_usd(replace(asked, demand=short), clock=Clock())


def test_stretches_serve_what_the_plan_has_and_their_least_hours() -> None:
    exact = 0
    for seed in range(400):
        rng = random.Random(seed)
        hours, least = rng.randint(2, 14), rng.randint(1, 3)
        serving = np.array([rng.randint(0, 5) for _ in range(hours)])
        begun = np.maximum(serving - np.roll(serving, 1), 0)
        stretches = list(_runs(serving, min(least, hours)))
        served = np.zeros(hours, np.int64)
        for begin, on in stretches:
            served[(begin + np.arange(on)) % hours] += 1
        assert (served >= serving).all()
        recent = sum(np.roll(begun, back) for back in range(least))
        assert all(min(least, hours) <= on <= hours for _, on in stretches)
        if (recent <= serving).all():
            exact += (served == serving).all()
    # fewer than least hours are left to a group now and then that another one could have
    assert exact > 150
