"""What is left of some units after the worst loss: no fleet that stands on them has more, and plans count on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, combinations_with_replacement, product
from math import prod
from random import Random

import pytest

from costmodel.plan.hours import Hours
from solver.clock import Clock
from solver.fleet.items import Item
from solver.plan.bounds.after_loss import most_after_loss
from solver.plan.bounds.any_layouts import any_layouts, bound_usd
from solver.plan.hours import plan_hours
from solver.shapes.shapes import ROLES
from tests.solver.plan.enumerated_plans import Rows, alone, best_of_all, tiny
from tests.solver.plan.test_hours import SAME, most_of_a_unit
from topology.errors import NoFeasibleLayout

#: chips of each unit
_SIZE = 4


def drawn(rng: Random) -> list[Item]:
    """A few items of any role, on one unit or on two."""
    found = []
    for shape in range(rng.randint(2, 4)):
        slices = rng.choice([1, 1, 2])
        chips = rng.randint(1, _SIZE)
        role = rng.randrange(len(ROLES))
        found.append(Item(shape, role, 0, slices, chips, rng.uniform(1.0, 9.0)))
    return found


def stands(items: list[Item], units: int) -> Iterator[list[tuple[Item, tuple[int, ...]]]]:
    """All ways in which up to four replicas stand on the units."""
    places = [(item, own) for item in items for own in combinations(range(units), item.slices)]
    for number in range(1, 5):
        for fleet in combinations_with_replacement(places, number):
            taken = [0] * units
            for item, own in fleet:
                for unit in own:
                    taken[unit] += item.slice_chips
            if max(taken) <= _SIZE:
                yield list(fleet)


def served(fleet: list[tuple[Item, tuple[int, ...]]], lost: int) -> float:
    """Requests/s without a unit."""
    rates = [0.0] * len(ROLES)
    for item, own in fleet:
        if lost not in own:
            rates[item.role] += item.requests_per_s
    by_role = dict(zip(ROLES, rates, strict=True))
    return min(by_role["prefill"], by_role["decode"]) + by_role["mixed"]


@pytest.mark.parametrize("units", [2, 3])
def test_no_fleet_keeps_more_than_the_bound_and_some_keep_as_much(units: int) -> None:
    reached = 0
    for seed in range(30):
        items = drawn(Random(seed))
        bound = most_after_loss(items, units, _SIZE, 1, clock=Clock(), seed=0).most
        best = max(
            (min(served(fleet, unit) for unit in range(units)) for fleet in stands(items, units)),
            default=0.0,
        )
        assert best <= bound * (1 + 1e-9)
        reached += 0.0 < bound <= best * (1 + 1e-6)
    assert reached > 3


def test_one_unit_keeps_nothing_and_a_replica_over_all_units_counts_for_nothing() -> None:
    mixed = ROLES.index("mixed")
    wide = Item(0, mixed, 0, 2, 2, 9.0)
    assert most_after_loss([wide], 1, _SIZE, 1, clock=Clock(), seed=0).most == 0.0
    assert most_after_loss([wide], 2, _SIZE, 1, clock=Clock(), seed=0).most == 0.0
    narrow = Item(1, mixed, 0, 1, 4, 5.0)
    assert most_after_loss([narrow], 3, _SIZE, 1, clock=Clock(), seed=0).most == pytest.approx(10.0)


def left_of_few(asked: Hours) -> dict[tuple[int, int], list[float]]:
    """What is left of none, one, two ... units after the worst loss of one, by model and kind: trying all groups on them."""
    found = {
        (m, k): [0.0] * (kind.units + 1)
        for m in range(len(asked.models))
        for k, kind in enumerate(asked.kinds)
    }
    for (m, k), table in found.items():
        own = [asked.columns[c] for c in asked.of_model[m] if asked.columns[c].kind == k]
        for groups in product(*(range(len(one.requests_per_s)) for one in own)):
            taken = sum(n * one.group for n, one in zip(groups, own, strict=True))
            left = min(
                (
                    sum(one.left(n, int(one is lost)) for n, one in zip(groups, own, strict=True))
                    for number, lost in zip(groups, own, strict=True)
                    if number
                ),
                default=0.0,
            )
            for units in range(taken, len(table)):
                table[units] = max(table[units], left)
    return found


def money_and_bounds(asked: Hours, rows: Rows) -> tuple[float, float] | None:
    """Bounds without and with what is left after a loss, where trying all plans finds one: none above the best of them."""
    best = best_of_all(asked, rows)
    if best is None:
        with pytest.raises(NoFeasibleLayout):
            plan_hours(asked, clock=Clock())
        return None
    assert plan_hours(asked, clock=Clock()).judged.usd == pytest.approx(best, rel=SAME)
    loads, drains = (
        all(getattr(one, name) > 0 for one in asked.columns) for name in ("start_s", "drain_s")
    )
    bounds = [
        bound_usd(
            any_layouts(asked, most_of_a_unit(asked), loads=loads, drains=drains, **more),
            clock=Clock(),
        )
        for more in ({}, {"left": left_of_few(asked)})
    ]
    assert bounds[0] * (1 - SAME) <= bounds[1] <= best
    return bounds[0], bounds[1]


def with_losses(seed: int, keeps: bool) -> tuple[Hours, Rows] | None:
    """A question of one model in which any unit may be lost and some groups have two; ``None`` where plans are many.

    ``keeps``: of a group that loses one of two units, up to a half is left.
    """
    asked, _ = tiny(seed)
    rng = Random(seed)
    if all(one.group == 1 for one in asked.columns if not one.model):
        return None
    columns = []
    for one in asked.columns:
        kept = rng.uniform(0.2, 0.5) * one.requests_per_s[1]
        left = (0.0, *(own + kept for own in one.requests_per_s[:-1]))
        columns.append(replace(one, after_loss=left) if keeps and one.group > 1 else one)
    asleep = (0.0,) * asked.hours
    asked = replace(asked, columns=tuple(columns), spare=1, demand=(asked.demand[0], asleep))
    rows = [alone(asked, hour) for hour in range(asked.hours)]
    return (asked, rows) if prod(len(own) for own in rows) <= 2_000 else None


@pytest.mark.parametrize("keeps", [False, True])
def test_plans_and_bounds_that_count_on_what_a_loss_leaves_are_those_of_trying_all(
    keeps: bool,
) -> None:
    found = [money_and_bounds(*one) for seed in range(150) if (one := with_losses(seed, keeps))]
    planned = [one for one in found if one is not None]
    assert len(planned) > 10
    # what a group of two units loses raises the bound
    assert any(with_left > without * (1 + SAME) for without, with_left in planned)
