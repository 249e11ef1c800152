"""Counts of which no expert has more than a busier one: all are listed, the best is exact in pairs, the bound holds."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest

from costmodel.experts.dispatch import chip_loads
from solver.bounds.experts.expert_bounds import copies_are_hot
from solver.experts import load_bounds, place_layers
from solver.experts.hot_counts import hot_counts
from solver.experts.slots import Slots
from tests.solver.experts.test_place import every_table


@pytest.mark.parametrize(("experts", "chips", "width"), [(4, 3, 2), (8, 5, 2), (3, 4, 2), (5, 4, 3), (6, 6, 2), (7, 5, 2)])  # fmt: skip
def test_every_count_is_listed_once(experts: int, chips: int, width: int) -> None:
    slots = Slots((width,) * chips)
    some = hot_counts(experts, slots)
    assert some is not None
    listed = [tuple(row) + (1,) * (experts - len(row)) for row in some.tolist()]
    falling = {
        counts[::-1]
        for counts in combinations_with_replacement(range(1, chips + 1), experts)
        if sum(counts) == slots.total
    }
    assert len(listed) == len(set(listed))
    assert set(listed) == falling


def test_where_they_are_too_many_or_none_are_spare_there_is_no_list() -> None:
    assert hot_counts(8, Slots((2,) * 1000)) is None
    assert hot_counts(256, Slots((2,) * 1024)) is None
    assert hot_counts(8, Slots((2,) * 4)) is None
    assert hot_counts(8, Slots((2, 2, 2, 3))) is None


def hot_optimum(loads: np.ndarray, chips: int, width: int) -> float:
    """The least busy busiest chip of all placements of one layer with such counts."""
    tables = np.stack(list(every_table(len(loads), chips, width)))
    hot = tables[copies_are_hot(np.broadcast_to(loads, (len(tables), len(loads))), tables)]
    return float(min(chip_loads(row[None], loads[None], width)[0].max() for row in hot))


def drawn(rng: np.random.Generator, experts: int) -> np.ndarray:
    """Loads of one layer: nearly even, skewed, or with ties."""
    loads = rng.lognormal(0, rng.choice([0.2, 1.0]), experts)
    if rng.random() < 0.3:
        loads = np.round(loads, 1) + 0.1
    return np.asarray(loads / loads.sum())


PAIRS = [(e, c) for c in range(2, 6) for e in range(2, 7) if e < 2 * c <= e * c]


@pytest.mark.parametrize(("experts", "chips"), PAIRS)
def test_pairs_are_the_optimum_of_all_placements(experts: int, chips: int) -> None:
    rng = np.random.default_rng(10 * experts + chips)
    loads = np.stack([drawn(rng, experts) for _ in range(6)])
    placed = place_layers(loads, [2] * chips, effort="enough", hot_copies=True)
    assert copies_are_hot(loads, placed.physical_to_logical).all()
    best = np.array([hot_optimum(own, chips, 2) for own in loads])
    assert placed.max_load == pytest.approx(best, rel=1e-9)
    assert placed.bound == pytest.approx(best, rel=1e-9)
    assert (placed.bound <= best).all()


@pytest.mark.parametrize(("experts", "chips", "width"), [(4, 3, 3), (5, 3, 3), (6, 3, 3), (5, 4, 3), (6, 2, 4)])  # fmt: skip
def test_of_more_slots_the_bound_holds_and_the_placement_is_near_it(
    experts: int, chips: int, width: int
) -> None:
    rng = np.random.default_rng(10 * experts + chips)
    loads = np.stack([drawn(rng, experts) for _ in range(4)])
    placed = place_layers(loads, [width] * chips, effort="enough", hot_copies=True)
    assert copies_are_hot(loads, placed.physical_to_logical).all()
    best = np.array([hot_optimum(own, chips, width) for own in loads])
    assert (placed.bound <= best * (1 + 1e-9)).all()
    assert (placed.max_load >= best * (1 - 1e-9)).all()
    assert (placed.max_load <= best * 1.01).all()
    assert (placed.bound >= load_bounds(loads, chips, chips * width) * (1 - 1e-9)).all()


@pytest.mark.parametrize("width", [2, 3])
def test_no_time_leaves_valid_placements_with_a_bound(width: int) -> None:
    loads = np.stack([drawn(np.random.default_rng(n), 8) for n in range(5)])
    placed = place_layers(loads, [width] * 9, effort="enough", hot_copies=True, time_limit_s=1e-9)
    assert copies_are_hot(loads, placed.physical_to_logical).all()
    assert (placed.bound <= placed.max_load).all()
    assert (placed.bound >= load_bounds(loads, 9, 9 * width) * (1 - 1e-9)).all()
