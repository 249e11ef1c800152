"""Plans to begin with: valid, never below the best, and the answer where the search over all hours has none."""

from __future__ import annotations

from math import sin, tau
from typing import Any

import pytest
from ortools.sat.python import cp_model

from costmodel.plan.hours import Column, Hours, Kind
from costmodel.plan.judge import judge
from solver.clock import Clock
from solver.plan import hours as under_test
from solver.plan.bounds import any_layouts
from solver.plan.bounds.any_layouts import bound_usd
from solver.plan.by_parts.linear import Linear
from solver.plan.first import First, first_plan
from solver.plan.hours import plan_hours
from solver.plan.model import HoursModel
from tests.solver.plan.enumerated_plans import best_of_all, tiny
from topology.errors import NoFeasibleLayout, NoLayoutInTime

SAME = 1e-9
#: a gap that no plan of the wide question has to have
NEAR = 0.05


def wide(hours: int = 12) -> Hours:
    """Two models on four places of forty units whose numbers CP-SAT counts one by one."""
    kinds = tuple(
        Kind(f"place {k}", 40, (0, 40), 3.0 + k, (5.0 + k,) * hours, power_w=700.0)
        for k in range(4)
    )
    columns = tuple(
        Column(f"{name} in {k}", m, k, 1, tuple(n * (6.1 + k + m) for n in range(41)), 600.0, 60.0, 2)
        for m, name in enumerate(("one", "other"))
        for k in range(4)
    )  # fmt: skip
    demand = tuple(
        tuple(250.0 + 130.0 * sin(tau * (hour / hours + m / 3)) for hour in range(hours))
        for m in range(2)
    )
    return Hours(("one", "other"), demand, kinds, columns, spare=1)


def test_a_search_that_finds_nothing_returns_the_plan_that_it_began_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = wide()
    assert asked.choices > under_test.SMALL
    monkeypatch.setattr(under_test, "LIMIT_S", 1e-6)
    found = plan_hours(asked, clock=Clock())
    assert not judge(asked, found.plan).violations
    assert found.judged.usd == judge(asked, found.plan).usd
    assert 0 < found.bound_usd <= found.judged.usd
    assert found.gap <= NEAR
    # the bound of the relaxation stands in for the one that the search has no time for
    assert bound_usd(asked, clock=Clock()) >= found.bound_usd * (1 - SAME)


def test_a_relaxation_without_time_leaves_the_search_s_own_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(self: object, **_: object) -> None:
        raise NoLayoutInTime("late")

    monkeypatch.setattr(Linear, "solve", late)
    monkeypatch.setattr(any_layouts, "LIMIT_S", 1e-6)
    asked = wide()
    assert 0 <= bound_usd(asked, clock=Clock()) <= plan_hours(asked, clock=Clock()).judged.usd


@pytest.mark.parametrize("hours", [2, 12])
def test_a_question_is_answered_though_the_time_is_over(hours: int) -> None:
    clock = Clock()
    clock.stop()
    asked = wide(hours)
    found = plan_hours(asked, clock=clock)
    assert not judge(asked, found.plan).violations
    assert found.bound_usd <= found.judged.usd


def test_first_plans_are_valid_and_never_below_the_best() -> None:
    made = 0
    for seed in range(300, 340):
        asked, rows = tiny(seed)
        best = best_of_all(asked, rows)
        first = first_plan(asked, clock=Clock(), seed=0)
        if first.found is None:
            continue
        assert best is not None
        plan, judged = first.found
        assert not judge(asked, plan).violations
        assert judged.usd >= best * (1 - SAME)
        assert first.bound_usd <= best * (1 + SAME)
        made += 1
    assert made > 10


def test_what_one_strategy_leaves_open_is_ended_by_several_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that has no time to speak of leaves most tiny plans open."""
    in_turns = []
    run = Clock.run

    def told(
        clock: Clock, model: cp_model.CpModel, **options: Any
    ) -> tuple[cp_model.CpSolver, int]:
        solver, status = run(clock, model, **options)
        if options.get("in_turns"):
            in_turns.append(status)
        return solver, status

    monkeypatch.setattr(Clock, "run", told)
    monkeypatch.setattr(under_test, "LIMIT_S", 0.001)
    for seed in range(300, 340):
        asked, rows = tiny(seed)
        best = best_of_all(asked, rows)
        if best is None:
            with pytest.raises(NoFeasibleLayout):
                plan_hours(asked, clock=Clock(), thorough=True)
            continue
        found = plan_hours(asked, clock=Clock(), thorough=True)
        assert found.judged.usd == pytest.approx(best, rel=SAME)
        assert best * (1 - SAME) <= found.bound_usd <= best
        assert found == plan_hours(asked, clock=Clock(), thorough=True)
    assert len(in_turns) > 5
    assert set(in_turns) <= {cp_model.OPTIMAL, cp_model.INFEASIBLE}


def test_the_solver_is_told_every_variable_of_the_first_plan() -> None:
    for asked in (wide(), *(tiny(seed)[0] for seed in range(300, 320))):
        first = first_plan(asked, clock=Clock(), seed=0)
        if first.found is None:
            continue
        model = HoursModel(asked)
        model.begin_with(*first.found)
        hinted = set(model.cp.proto.solution_hint.vars)
        assert hinted >= {n for n, one in enumerate(model.cp.proto.variables) if one.name}
        solver = cp_model.CpSolver()
        solver.parameters.fix_variables_to_their_hinted_value = True
        solver.parameters.num_workers = 1
        assert solver.solve(model.cp) == cp_model.OPTIMAL
        assert model.read(solver) == first.found[0]
        claimed = solver.objective_value * model.usd
        assert first.found[1].usd == pytest.approx(claimed, rel=1e-6)


def test_what_was_not_found_is_said_apart_from_the_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(under_test, "LIMIT_S", 1e-6)
    monkeypatch.setattr(under_test, "first_plan", lambda *_, **__: First(None, 0.0))
    with pytest.raises(NoFeasibleLayout, match="in the work that one search may take") as raised:
        plan_hours(wide(), clock=Clock())
    assert not raised.value.proven
    over = Clock()
    over.stop()
    with pytest.raises(NoLayoutInTime):
        plan_hours(wide(), clock=over)
