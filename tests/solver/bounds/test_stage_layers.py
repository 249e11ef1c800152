"""Stages that HBM keeps short: the quickest cut of a large batch may not be allowed, and bounds know it."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from solver.bounds.one_cut import longest_on_one_cut
from solver.clock import Clock
from solver.place.stages import shortest_longest_stage
from solver.rounds import Search
from solver.shapes.shapes import ROLES


def test_the_longest_stage_of_so_many_layers_is_that_of_the_best_cut() -> None:
    rng = np.random.default_rng(4)
    for _ in range(60):
        layers, stages = int(rng.integers(3, 9)), int(rng.integers(2, 4))
        seconds, head = rng.uniform(0.1, 1.0, layers), float(rng.uniform(0, 2))
        for most in range(-(-layers // stages), layers + 1):
            cuts = [(0, *inner, layers) for inner in combinations(range(1, layers), stages - 1)]
            best = min(
                max(
                    seconds[first:end].sum() + head * (end == layers)
                    for first, end in pairwise(cut)
                )
                for cut in cuts
                if max(end - first for first, end in pairwise(cut)) <= most
            )
            begins, ends = np.ogrid[: layers + 1, : layers + 1]
            found = shortest_longest_stage(
                [np.array([one]) for one in seconds], range(layers), np.array([head]),
                np.array([float(stages)]), (ends > begins) & (ends - begins <= most),
            )  # fmt: skip
            assert found.item() == pytest.approx(best, rel=1e-6)
            assert found.item() <= best


@pytest.mark.parametrize("seed", range(8))
def test_longest_stages_of_two_passes_on_one_cut_are_those_of_all_cuts(seed: int) -> None:
    """Every cut is no shorter in both than some pair. Every pair is that of some cut."""
    rng = np.random.default_rng(seed)
    layers, stages = 9, int(rng.integers(2, 5))
    seconds, heads = rng.uniform(0.1, 1.0, (2, layers)), rng.uniform(0, 2, 2) * [1.0, 0.1]
    held, room = rng.uniform(0.5, 1.0, layers), rng.uniform(3.0, 5.0)
    allowed = np.array(
        [
            [begin < end and held[begin:end].sum() <= room for end in range(layers + 1)]
            for begin in range(layers + 1)
        ]
    )
    cuts = [
        tuple(
            max(own[first:end].sum() + head * (end == layers) for first, end in pairwise(cut))
            for own, head in zip(seconds, heads, strict=True)
        )
        for inner in combinations(range(1, layers), stages - 1)
        for cut in [(0, *inner, layers)]
        if all(allowed[first, end] for first, end in pairwise(cut))
    ]
    pairs = longest_on_one_cut(seconds, heads, stages, allowed).T
    assert bool(cuts) is bool(len(pairs))
    for cut in cuts:
        assert any(first <= cut[0] and second <= cut[1] for first, second in pairs)
    for pair in pairs:
        assert any(pair == pytest.approx(cut, rel=1e-6) for cut in cuts)


def _search(**asked: object) -> Search:
    return Search(resolve_instance(Scenario.model_validate(asked)), Clock(None), 0.01, 0, None)


@pytest.mark.parametrize("role", ["decode", "mixed"])
@pytest.mark.parametrize(("model", "slo"), [("llama-3.1-70b", {"tpot": 0.1}), ("gemma-3-27b", {})])
def test_no_replica_in_stages_serves_more_than_its_bound(
    model: str, slo: dict[str, float], role: str
) -> None:
    """Dense models that fill HBM: every cut and batch that the placer tries stays below, and some bounds fell."""
    search = _search(
        model=model, cluster="hgx-h100", slo=slo,
        workload={"input_tokens": 6000, "output_tokens": 600},
    )  # fmt: skip
    shapes = search.shapes
    fell = 0
    for row in np.flatnonzero((shapes.role == ROLES.index(role)) & (shapes.pp > 1)):
        most = int(search.bounds.per_rank[row])
        if not most:
            continue
        found = search.placed.place(int(row), most)
        bound = search.pricer.tightened(shapes, int(row), None, most)
        assert found is not None
        assert found.requests_per_s <= bound * (1 + 1e-9) <= search.bounds.requests_per_s[row] * (
            1 + 1e-6
        )  # fmt: skip
        fell += bound < search.bounds.requests_per_s[row] * (1 - 1e-3)
    assert fell


def test_a_batch_that_leaves_no_room_for_long_stages_is_not_hoped_for() -> None:
    """94 layers on two stages of 46 chips: with 376 sequences only 47 and 47 fit, where 50 and 44 are quickest."""
    search = _search(
        model="qwen3-235b-a22b", cluster="nvl-72@2", workload="chat", slo={"tpot": 0.06},
        limits={"max_domains_per_replica": 2},
    )  # fmt: skip
    shapes = search.shapes
    row = int(
        np.flatnonzero(
            (shapes.role == 1) & (shapes.pp == 2) & (shapes.attention_dp == 46) & (shapes.tp == 1)
            & (shapes.slots == 138)
        )[0]
    )  # fmt: skip
    hoped = search.items.upper[row]
    assert (
        search.pricer.tightened(shapes, row, None, int(search.bounds.per_rank[row])) < 0.99 * hoped
    )
