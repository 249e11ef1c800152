"""Two slots per chip: replica counts whose pieces pair evenly."""

from itertools import product

import numpy as np
import pytest

from solver.bounds.experts.expert_bounds import copies_are_hot
from solver.experts import place_layers
from solver.experts.bounds.closed_form import load_bounds
from solver.experts.replicas import folded, greedy_replicas, lower_folds


def drawn(layers, experts, chips, seed=0):
    loads = np.random.default_rng(seed).lognormal(0, 1, (layers, experts))
    loads /= loads.sum(axis=1, keepdims=True)
    return loads, greedy_replicas(loads, 2 * chips, chips), load_bounds(loads, chips, 2 * chips)


def lowered(loads, start, bound, chips, *, hot_copies, deadline=None):
    return lower_folds(
        loads, start, bound, chips, hot_copies=hot_copies, tolerance=1e-3,
        rng=np.random.default_rng(0), deadline=deadline,
    )  # fmt: skip


def least_fold(load, chips, *, hot_copies):
    """The busiest chip of the best counts, by trying all."""
    falling, best = np.sort(load)[::-1], np.inf
    for counts in product(range(1, chips + 1), repeat=len(load)):
        counts = np.array(counts)
        if counts.sum() == 2 * chips and not (hot_copies and (np.diff(counts) > 0).any()):
            best = min(best, folded(falling[None], counts[None]).max())
    return best


@pytest.mark.parametrize("hot_copies", [True, False])
def test_counts_keep_the_slots_and_lie_between_the_optimum_and_the_start(hot_copies):
    chips = 4
    loads, start, bound = drawn(30, 5, chips)
    found = lowered(loads, start, bound, chips, hot_copies=hot_copies)
    assert (found.sum(axis=1) == 2 * chips).all()
    assert (found >= 1).all()
    assert (found <= chips).all()
    peak, before = folded(loads, found).max(axis=1), folded(loads, start).max(axis=1)
    best = np.array([least_fold(load, chips, hot_copies=hot_copies) for load in loads])
    assert (peak <= before * (1 + 1e-12)).all()
    assert (peak >= best * (1 - 1e-12)).all()
    near = bound * (1 + 1e-3)  # where the descent stops
    assert np.median(peak / np.maximum(best, near)) <= 1 + 1e-12


@pytest.mark.parametrize(("experts", "chips"), [(32, 63), (256, 160)])
def test_busier_experts_keep_as_many_replicas_and_chips_become_more_even(experts, chips):
    loads, start, bound = drawn(6, experts, chips)
    found = lowered(loads, start, bound, chips, hot_copies=True)
    order = np.argsort(-loads, axis=1)
    assert (np.diff(np.take_along_axis(found, order, axis=1), axis=1) <= 0).all()
    peak, before = folded(loads, found).max(axis=1), folded(loads, start).max(axis=1)
    assert (peak < before).all()
    free = folded(loads, lowered(loads, start, bound, chips, hot_copies=False)).max(axis=1)
    assert (free <= peak * (1 + 1e-12)).all()


def test_a_deadline_that_passed_leaves_the_counts():
    loads, start, bound = drawn(4, 32, 40)
    assert (lowered(loads, start, bound, 40, hot_copies=False, deadline=0.0) == start).all()


def test_placements_with_hot_copies_have_them_and_are_no_worse_than_quick_ones():
    loads, _, _ = drawn(8, 64, 50)
    placed = place_layers(loads, [2] * 50, effort="enough", hot_copies=True)
    assert copies_are_hot(loads, placed.physical_to_logical).all()
    quick = place_layers(loads, [2] * 50, effort="fast")
    assert placed.max_load.mean() < quick.max_load.mean()
