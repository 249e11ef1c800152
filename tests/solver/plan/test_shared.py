"""Which parts of a unit stand together, where each stands, and whether models share units at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from costmodel.evaluate import evaluate
from costmodel.plan.hours import Column, Hours, Kind
from costmodel.plan.question import PlanModel, PlanQuestion, PlanUnits
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo
from solver.clock import Clock
from solver.plan import shared
from solver.plan.bounds.of_offers import chip_shares
from solver.plan.groups import UnitLayout, copies
from solver.plan.shared import may_share, shared_columns
from solver.plan.units import Offer
from solver.search import search
from topology import load_cluster
from topology.errors import InstanceError

KIND = Kind("node", 2, (0, 0), 1.0, (1.0,))


@pytest.fixture(scope="module")
def layout() -> UnitLayout:
    """Any layout; tests of ways read its rate alone."""
    scenario = Scenario(model="llama-3.1-8b", cluster="hgx-h200", workload="chat")
    found = search(resolve_instance(scenario), clock=Clock(), gap=0.5)
    return UnitLayout(
        resolve_instance(scenario), found.layout, 1, 1.0, 1.0, start_s=9.0, drain_s=9.0
    )


def parts(layout: UnitLayout, *rates: dict[int, float]) -> shared.Parts:
    return {
        m: {chips: replace(layout, requests_per_s=rate) for chips, rate in own.items()}
        for m, own in enumerate(rates)
    }


def hours(*demand: tuple[float, ...]) -> Hours:
    names = tuple(f"m{n}" for n in range(len(demand)))
    whole = tuple(Column(f"whole {n}", n, 0, 1, (0.0, 8.0, 16.0)) for n in range(len(demand)))
    return Hours(names, demand, (KIND,), whole)


def test_two_models_have_every_way_to_fill_a_unit_that_carries_more_than_others(
    layout: UnitLayout,
) -> None:
    own = parts(layout, {2: 2.0, 4: 4.0, 6: 6.0}, {2: 1.0, 3: 2.0, 5: 3.0})
    ways = shared._ways(hours((9.0,), (9.0,)), 0, own, 8)
    assert set(ways) == {((0, 2), (1, 5)), ((0, 4), (1, 3)), ((0, 6), (1, 2))}
    # more than is asked for is worth nothing
    assert shared._ways(hours((4.0,), (2.0,)), 0, own, 8) == [((0, 4), (1, 3))]


def test_three_models_share_a_unit_where_they_fit(layout: UnitLayout) -> None:
    own = parts(layout, {2: 2.0, 4: 4.0}, {2: 2.0, 4: 4.0}, {4: 1.0})
    ways = set(shared._ways(hours((9.0,), (9.0,), (1.0,)), 0, own, 8))
    assert ways == {((0, 2), (1, 2), (2, 4)), ((0, 4), (1, 4)), ((0, 4), (2, 4)), ((1, 4), (2, 4))}


def test_many_models_are_dealt_to_units_hour_by_hour(layout: UnitLayout) -> None:
    """Of what whole units leave, the largest first; room that is left makes a part larger."""
    own = parts(layout, *({2: 2.0, 4: 4.0, 6: 6.0} for _ in range(4)))
    # 11 are one whole unit and 3, which take four chips
    found = shared._ways(hours((11.0,), (6.0,), (2.0,), (1.0,)), 0, own, 8)
    assert found == [((1, 6), (3, 2)), ((0, 6), (2, 2))]


def question(**changes: Any) -> PlanQuestion:
    models = tuple(
        PlanModel(model="llama-3.1-8b", name=f"m{n}", slo=Slo(tpot=0.03), requests_per_s=(1.0, 2.0))
        for n in range(2)
    )
    units = (PlanUnits(cluster="hgx-h200", count=2),)
    return PlanQuestion(**{"name": "p", "models": models, "units": units, **changes})


def test_models_share_few_units_or_where_a_question_says_so() -> None:
    many = (PlanUnits(cluster="hgx-h200", count=9),)
    traffic = tuple(
        one.model_copy(update={"traffic": "azure-conversation-2023"}) for one in question().models
    )
    assert may_share(question())
    assert not may_share(question(share=False))
    assert not may_share(question(models=question().models[:1], share=True))
    assert not may_share(question(units=many))
    assert may_share(question(units=many, share=True))
    assert not may_share(question(models=traffic))
    assert may_share(question(models=traffic, share=True))
    racks = (PlanUnits(cluster="gb200-nvl72", count=200),)
    with pytest.raises(InstanceError, match=r"p: share: .* up to 40,000 .*; here are 57,604"):
        may_share(question(units=racks, share=True))


def test_what_a_chip_is_of_a_unit() -> None:
    units = PlanUnits(cluster="hgx-h200", count=2)
    assert chip_shares(units, 0) == (0.125,) * 8
    assert chip_shares(units, 2) == pytest.approx((1 / 6,) * 6)


@pytest.fixture(scope="module")
def small() -> tuple[PlanQuestion, Hours, shared.Shared]:
    """Two models that two and one chips of a node carry."""
    asked = question(
        models=(
            PlanModel(model="llama-3.1-8b", name="more", workload="chat", slo=Slo(tpot=0.03), requests_per_s=(6.0, 1.0)),
            PlanModel(model="llama-3.1-8b", name="less", workload="chat", slo=Slo(tpot=0.03), requests_per_s=(1.0, 2.0)),
        )
    )  # fmt: skip
    own = Hours(("more", "less"), ((6.0, 1.0), (1.0, 2.0)), (replace(KIND, on_demand_usd_per_hour=(1.0, 1.0)),), ())  # fmt: skip
    return asked, own, found(asked, own)


def found(asked: PlanQuestion, own: Hours) -> shared.Shared:
    return shared_columns(
        asked, own, [0], clock=Clock(), gap=0.01, seed=0, on_progress=lambda said: None
    )


def test_each_model_stands_on_chips_of_its_own(
    small: tuple[PlanQuestion, Hours, shared.Shared],
) -> None:
    _, _, one = small
    assert [column.name for column in one.columns] == [
        "more on 2 chips of hgx-h200, beside less on 1 chip",
        "less on 1 chip of hgx-h200, beside more on 2 chips",
    ]
    assert [column.group for column in one.columns] == [1, 0]
    assert len({column.shared for column in one.columns}) == 1
    chips = [chip.id for chip in load_cluster("hgx-h200").chips]
    used = [{chip for r in own.layout.replicas for chip in r.chips} for own in one.layouts]
    assert used == [set(chips[:2]), {chips[2]}]
    for own, column in zip(one.layouts, one.columns, strict=True):
        assert own.units == {"more": 0.25, "less": 0.125}[column.name.split()[0]]
        assert evaluate(own.instance, own.layout).feasible
        # two units have twice as much, on chips that the others leave
        instance, layout = copies(own, 2, "hgx-h200", 0)
        twice = evaluate(instance, layout)
        assert twice.feasible
        assert twice.requests_per_s == pytest.approx(2 * own.steady_requests_per_s)
        assert len(instance.scenario.taken) == 2 * len(own.instance.scenario.taken)


def test_ways_that_links_do_not_carry_are_left_out(
    small: tuple[PlanQuestion, Hours, shared.Shared], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, own, _ = small
    monkeypatch.setattr(shared, "headroom_of", lambda links, rates, priced: 0.9)
    assert found(asked, own) == shared.Shared()


def test_a_unit_is_said_to_carry_no_less_than_a_part_of_it_does_for_its_size(
    small: tuple[PlanQuestion, Hours, shared.Shared],
) -> None:
    """Parts may run what bounds do not look at; a bound above the plan would be an internal error."""
    _, _, one = small
    (more, less) = one.layouts
    each = more.requests_per_s / more.units
    low = Offer((), each / 2, (), most_of_few=(0.0, each / 2))
    high = Offer((), 2 * each, (), most_of_few=(0.0, 2 * less.requests_per_s / less.units))
    found = one.no_less({(0, 0): low, (1, 0): high})
    assert found[0, 0].most_requests_per_s == each
    assert found[0, 0].most_of_few == (0.0,)
    assert found[1, 0] is high
    # of many units nothing is known but what each carries
    many = Offer((), 2 * each, ())
    assert one.no_less({(0, 0): many, (1, 0): high})[0, 0] is many
    few = replace(low, most_requests_per_s=2 * each)
    assert one.no_less({(0, 0): few, (1, 0): high})[0, 0].most_of_few == (0.0,)


def test_units_that_load_longer_than_the_plan_lasts_are_left_out(
    small: tuple[PlanQuestion, Hours, shared.Shared],
) -> None:
    asked, own, _ = small
    slow = asked.model_copy(update={"load_extra": 3 * 3600.0})
    assert found(slow, own) == shared.Shared()
