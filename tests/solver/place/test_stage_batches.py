"""Replicas in stages: where whole layers have to fit, a smaller batch may be the better one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo, Workload
from solver.clock import Clock
from solver.place.stages import cut_stages
from solver.rounds import Search
from solver.search import search

Array = NDArray[np.float64]


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


def test_a_model_that_ran_out_of_time_proves_nothing(
    tiny: Callable[[int, int, int, int], Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages of models of a few layers are cut with their experts and targets in one model, which may end unsettled."""
    search = Search(tiny(4, 4, 6, 0), Clock(60), 0.01, 0, None)
    row = next(
        row
        for row in range(len(search.shapes))
        if search.shapes.row(row)["pp"] == 2 and search.bounds.per_rank[row] > 1
    )
    most = int(search.bounds.per_rank[row])
    proven = search.placed.realiser.realise(row, most)
    solve = cp_model.CpSolver.solve

    def stopped(solver: cp_model.CpSolver, model: cp_model.CpModel) -> int:
        status = solve(solver, model)
        return cp_model.FEASIBLE if status == cp_model.OPTIMAL else status

    monkeypatch.setattr(cp_model.CpSolver, "solve", stopped)
    unsettled = search.placed.realiser.realise(row, most)
    assert unsettled.upper_requests_per_s > proven.upper_requests_per_s


def enumerated(times: Array, sizes: Array, edges: tuple[Array, Array], room: float) -> float:
    """Least longest stage over every cut; ``inf``: none fits."""
    best = float("inf")
    for inner in combinations(range(1, len(times)), len(edges[0]) - 1):
        parts = list(pairwise((0, *inner, len(times))))
        held = [sizes[a:b].sum() + edges[1][s] for s, (a, b) in enumerate(parts)]
        if max(held) <= room:
            best = min(best, max(times[a:b].sum() + edges[0][s] for s, (a, b) in enumerate(parts)))
    return best


def test_cuts_are_the_best_of_all() -> None:
    rng, fitting = np.random.default_rng(1), 0
    for _ in range(200):
        layers, stages = int(rng.integers(1, 10)), int(rng.integers(1, 5))
        times, sizes = rng.uniform(0.1, 1.0, layers), rng.uniform(0.1, 1.0, layers)
        edges = rng.uniform(0.0, 0.5, stages), rng.uniform(0.0, 0.5, stages)
        room = float(rng.uniform(0.3, 1.5) * sizes.sum() / stages + 0.3)
        cut = cut_stages(times, sizes, edges[0].tolist(), edges[1].tolist(), room)
        best = enumerated(times, sizes, edges, room)
        assert (cut is None) == (best == float("inf"))
        if cut is None:
            continue
        fitting += 1
        assert [first for first, _ in cut] == [0, *(last + 1 for _, last in cut[:-1])]
        assert cut[-1][1] == layers - 1
        spans = [slice(first, last + 1) for first, last in cut]
        took = [times[own].sum() + edge for own, edge in zip(spans, edges[0], strict=True)]
        held = [sizes[own].sum() + edge for own, edge in zip(spans, edges[1], strict=True)]
        assert max(held) <= room * (1 + 1e-12)
        assert max(took) == pytest.approx(best)
    assert fitting > 50


def test_unlike_layers_in_many_stages_are_cut() -> None:
    """Jamba's 72 layers of four kinds in eight stages, which a CP-SAT model left unsettled in its share of the work."""
    workload = Workload(input_tokens=100_000, output_tokens=4000)
    asked = Scenario(
        model="jamba-1.5-large", cluster="nvl144", workload=workload, slo=Slo(ttft=0.5, tpot=0.02), rate=1.0
    )  # fmt: skip
    found = search(resolve_instance(asked), clock=Clock())
    assert found.status == "optimal"
    assert found.evaluation.chips_used == 32  # mixed replicas; pools of each kind take 36
    assert max(len(replica.stages) for replica in found.layout.replicas) == 8
