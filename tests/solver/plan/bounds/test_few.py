"""What some units carry at most, bounded once for all numbers of them, beside each number bounded by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from costmodel.plan.question import PlanModel, PlanUnits
from solver.clock import Clock
from solver.known import groundwork
from solver.plan.bounds import few, most
from solver.plan.bounds.few import most_of_few
from solver.plan.bounds.most import Every
from solver.plan.groups import UnitLayout
from solver.plan.units import Offer
from solver.traffic.bounds.late import least_usd
from tests.solver.plan.test_units import long_prompts, with_trace

_UNITS = PlanUnits(cluster="hgx-h100", count=4)


@pytest.fixture
def model(tmp_path: Path) -> PlanModel:
    return with_trace(tmp_path, "gpt-oss-120b", long_prompts(300, 150), 1.0, 0.02)


def _by_itself(model: PlanModel, number: int) -> float:
    """Requests/s of so many units at most, the best of all tokens that a pass may take."""
    found = 0.0
    for one in Every.on(model, _UNITS, number, 0, "whole", 0):
        usd = least_usd(*one.joined.bounded(Clock(), 0))
        found = max(found, one.requests_per_s(usd * one.share))
    return found


def test_numbers_of_units_are_bounded_as_each_by_itself(
    model: PlanModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(most, "chunks_of", lambda *_: (2048,))
    carried, left = most_of_few(model, _UNITS, 0, Clock(), 0)
    assert carried == pytest.approx([0.0, *(_by_itself(model, n) for n in (1, 2, 3, 4))], rel=1e-6)
    assert len(left) == 5
    assert left[:2] == (0.0, 0.0)
    assert all(0.0 < left[n] <= carried[n - 1] * (1 + 1e-9) for n in (2, 3, 4))


def test_ways_together_are_no_less_than_the_best_of_them(model: PlanModel) -> None:
    carried, _ = most_of_few(model, _UNITS, 0, Clock(), 0)
    best = [_by_itself(model, number) for number in (1, 4)]
    assert carried[1] >= best[0] * (1 - 1e-9)
    assert carried[4] >= best[1] * (1 - 1e-9)
    assert carried[4] <= best[1] * 1.02


def test_shapes_that_the_largest_number_does_not_have_are_bounded_anew(
    model: PlanModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two units have replicas on chips in unequal parts; of four these are too many to look at."""
    monkeypatch.setattr(most, "chunks_of", lambda *_: (2048,))
    rows = {
        number: {
            row
            for one in Every.on(model, _UNITS, number, 0, "whole", 0)
            for row in few._rows(groundwork(one.joined.instance).shapes)
        }
        for number in (2, 3, 4)
    }
    assert rows[3] <= rows[4]
    assert rows[2] - rows[4]
    seen: list[int] = []

    def bounded(ways: tuple[Every, ...], clock: Clock, seed: int) -> list[few._Bounded]:
        seen.extend(len(one.instance.cluster.domains) for one in ways)
        return [few._Bounded.of(one, clock, seed) for one in ways]

    monkeypatch.setattr(few, "_bounded", bounded)
    most_of_few(model, _UNITS, 0, Clock(), 0)
    assert seen == [4, 2]


def known(group: int, rate: float, left: float = 0.0) -> UnitLayout:
    """A layout of which only numbers matter."""
    nothing: Any = None
    return UnitLayout(
        nothing, nothing, group, rate, rate, 60.0, 60.0, left, ((0,),) if left else ()
    )


@pytest.mark.parametrize(
    ("layouts", "carried", "left"),
    [
        # what a loss leaves of three units is not what two carry
        ([known(2, 9.0)], (0.0, 5.0, 10.0, 15.0, 20.0), (0.0, 0.0, 4.0, 7.0, 12.0)),
        ([known(2, 9.0), known(2, 10.0)], (0.0, 5.0, 10.0, 15.0, 20.0), (0.0, 0.0, 4.0, 7.0, 12.0)),
        ([known(1, 4.5)], (0.0, 5.0, 10.0, 15.0, 20.0), (0.0, 0.0, 4.5, 9.0, 13.5)),
        ([known(1, 4.5), known(2, 9.5)], (0.0, 5.0, 10.0, 15.0, 20.0), (0.0, 0.0, 4.5, 9.0, 13.5)),
        ([known(3, 15.0, 11.0)], (0.0, 5.0, 10.0, 15.0, 20.0), (0.0, 0.0, 4.0, 11.0, 12.0)),
        ([known(1, 1.0), known(3, 15.0, 13.0)], (0.0, 5.0, 10.0, 15.0, 20.0), (0.0, 0.0, 4.0, 13.0, 14.0)),
        # more than the bound says: it has not looked at what these run
        ([known(2, 11.0)], (0.0, 5.0, 11.0, 15.0, 22.0), (0.0, 0.0, 4.0, 11.0, 12.0)),
    ],
)  # fmt: skip
def test_what_none_exceeds_is_no_less_than_known_layouts_carry_and_keep(
    layouts: list[UnitLayout], carried: tuple[float, ...], left: tuple[float, ...]
) -> None:
    bounds = (0.0, 5.0, 10.0, 15.0, 20.0), (0.0, 0.0, 4.0, 7.0, 12.0)
    one = Offer((), 5.0, (), "", *bounds).having(layouts)
    assert one.layouts == tuple(layouts)
    assert one.most_of_few == carried
    assert one.left_of_few == left
    assert one.most_requests_per_s == max(5.0, *(own.requests_per_s / own.group for own in layouts))
