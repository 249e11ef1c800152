"""Spare slots filled by load: what the busiest chip touches at least, against placements and drawn copies."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from costmodel.experts.moe_load import expert_shares, touch_probability
from costmodel.layout.layout import spread
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from solver.bounds.experts.expert_bounds import GRID, ExpertBounds, copies_are_hot
from solver.clock import Clock
from solver.experts import place_layers
from solver.rounds import Search

EXPERTS, TOP_K = 24, 4


def _copies(rng: np.random.Generator, spare: int, chips: int) -> np.ndarray:
    """Copies of experts from the busiest on: drawn, never rising, at most one to a chip."""
    copies = np.ones(EXPERTS, dtype=np.int64)
    reach = int(rng.integers(1, EXPERTS + 1))
    for _ in range(spare):
        room = [
            e for e in range(EXPERTS) if copies[e] < chips and (e == 0 or copies[e] < copies[e - 1])
        ]
        near = [e for e in room if e < reach] or room
        copies[rng.choice(near)] += 1
    return copies


@pytest.mark.parametrize(
    ("chips", "spare"), [(4, 3), (8, 8), (12, 24), (24, 60), (20, 96), (40, 250)]
)
def test_no_copies_that_follow_the_load_touch_less(chips: int, spare: int) -> None:
    rng = np.random.default_rng(chips + spare)
    for skew in (0.1, 0.5, 3.0):
        loads = -np.sort(-rng.dirichlet(np.full(EXPERTS, skew), size=3), axis=1)
        bounds = ExpertBounds(loads, TOP_K, hot_copies=True)
        mean, least = bounds.touched_on_grid(chips, EXPERTS + spare)
        for _ in range(30):
            copies = _copies(rng, spare, chips)
            assert copies.sum() == EXPERTS + spare
            for place in (3, 15, 30, 45):
                reached = touch_probability(loads, TOP_K, GRID[place], copies)
                average = (copies * reached).sum(axis=1) / chips
                assert mean[place] <= average.mean() * (1 + 1e-12)
                assert least[place] <= average.min() * (1 + 1e-12)
                exact = bounds.touched_by_layer(chips, EXPERTS + spare, GRID[place])
                assert (exact <= average * (1 + 1e-12)).all()


@pytest.mark.parametrize(("chips", "slots"), [(6, 36), (12, 60), (12, 96)])
def test_placements_follow_the_load_and_hardly_touch_more(chips: int, slots: int) -> None:
    rng = np.random.default_rng(slots)
    loads = rng.dirichlet(np.full(EXPERTS, 0.5), size=4)
    placed = place_layers(loads, spread(slots, chips), effort="good").physical_to_logical
    assert copies_are_hot(loads, placed).all()
    bounds = ExpertBounds(loads, TOP_K, hot_copies=True)
    for place in (20, 30):
        shares = expert_shares(loads, placed, spread(slots, chips), TOP_K, GRID[place])
        bound = bounds.touched_on_grid(chips, slots)[0][place]
        assert bound <= shares.most_touched.mean() <= 1.35 * bound


def test_copies_of_a_colder_expert_are_told() -> None:
    loads = np.array([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2]])
    slots = np.array([[0, 1, 1, 2], [0, 1, 1, 2]])
    assert copies_are_hot(loads, slots).tolist() == [False, True]


def test_shapes_with_copies_that_nobody_needs_are_not_hoped_for() -> None:
    """Five slots on each of 53 chips serve less than three: more weights are read, and few need the copies."""
    asked = {
        "model": "qwen3-235b-a22b",
        "cluster": "nvl-72",
        "workload": "chat",
        "slo": {"tpot": 0.015},
    }
    search = Search(resolve_instance(Scenario.model_validate(asked)), Clock(None), 0.01, 0, None)
    shapes = search.shapes
    wide = (shapes.role == 1) & (shapes.tp == 1) & (shapes.attention_dp == 53) & (shapes.pp == 1)
    hoped = {int(shapes.slots[row]): search.items.upper[row] for row in np.flatnonzero(wide)}
    assert hoped[265] < hoped[159]


@pytest.mark.parametrize("chips", [5, 7, 9, 12])
@pytest.mark.parametrize("hot_copies", [True, False])
def test_of_one_slot_a_chip_the_bound_is_that_of_the_best_copies(
    chips: int, hot_copies: bool
) -> None:
    """Every number of copies of five experts: the fullest chip reads its replica as seldom as any has it."""
    rng = np.random.default_rng(chips)
    loads = rng.dirichlet(np.full(5, 2.0), size=3)
    loads = np.minimum(loads, 0.45)
    loads /= loads.sum(axis=1, keepdims=True)
    bounds = ExpertBounds(loads, 2, hot_copies=hot_copies)
    assert loads.max() * 2 <= 1.0
    every = [
        np.array(copies)
        for copies in itertools.product(range(1, chips - 3), repeat=5)
        if sum(copies) == chips
    ]
    mean, least = bounds.touched_on_grid(chips, chips)
    for place in (0, 4, 9, 20):
        reached = np.array([touch_probability(loads, 2, GRID[place], copies) for copies in every])
        best = reached.max(axis=-1).min(axis=0)
        assert bounds.touched_by_layer(chips, chips, GRID[place]) == pytest.approx(best, rel=1e-8)
        assert mean[place] == pytest.approx(best.mean(), rel=1e-8)
        assert mean[place] <= best.mean()
        assert least[place] <= best.min()
    # of loads that one token may reach twice nothing is said
    assert (ExpertBounds(loads, 20, hot_copies=hot_copies)._hottest(chips, chips, GRID[:1]) == 0.0).all()  # fmt: skip
