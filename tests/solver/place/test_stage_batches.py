"""Replicas in stages: where whole layers have to fit, a smaller batch may be the better one."""

from __future__ import annotations

import pytest
from ortools.sat.python import cp_model

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from solver.clock import Clock
from solver.rounds import Search


@pytest.mark.parametrize("model", ["qwen3-8b", "gemma-3-27b"])
def test_dense_models_without_a_target_are_proven(model: str) -> None:
    instance = resolve_instance(Scenario(model=model, cluster="hgx-h100", workload="chat"))
    search = Search(instance, Clock(60), 0.01, 0, None)
    found = search.run()
    assert found is not None
    assert found.status == "optimal"
    search.place([decode_in_three_stages(search)])  # whether the search needed it or not
    piped = [row for row, _ in search.placed.realised.items() if search.shapes.row(row)["pp"] > 1]
    assert piped
    for row in piped:
        placed = search.placed.realised[row]
        # layers of one kind and no experts: the best cut of each batch is known, and so is the best batch
        assert placed.upper_requests_per_s == pytest.approx(placed.requests_per_s, rel=1e-5)


def decode_in_three_stages(search: Search) -> int:
    (row,) = [
        row
        for row in range(len(search.shapes))
        if (shape := search.shapes.row(row))["pp"] == 3 and shape["role"] == 1 and shape["tp"] == 1
    ]
    return row


def test_a_smaller_batch_is_taken_where_its_cut_serves_more() -> None:
    instance = resolve_instance(Scenario(model="gemma-3-27b", cluster="hgx-h100", workload="chat"))
    search = Search(instance, Clock(60), 0.01, 0, None)
    row = decode_in_three_stages(search)
    most = int(search.bounds.per_rank[row])
    placed = search.placed.realiser.realise(row, most)
    assert max(placed.sequences) < most - 1
    evenly = [last - first + 1 for first, last in placed.stages]
    assert evenly[-1] < evenly[0]


def test_a_cut_that_ran_out_of_time_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = resolve_instance(Scenario(model="qwen3-8b", cluster="hgx-h100", workload="chat"))
    search = Search(instance, Clock(60), 0.01, 0, None)
    row = decode_in_three_stages(search)
    most = int(search.bounds.per_rank[row])
    proven = search.placed.realiser.realise(row, most).upper_requests_per_s
    solve = cp_model.CpSolver.solve

    def stopped(solver: cp_model.CpSolver, model: cp_model.CpModel) -> int:
        status = solve(solver, model)
        return cp_model.FEASIBLE if status == cp_model.OPTIMAL else status

    monkeypatch.setattr(cp_model.CpSolver, "solve", stopped)
    assert search.placed.realiser.realise(row, most).upper_requests_per_s > proven
