"""Slots shared among layers: the shares equal enumeration, the bound is below every one of them."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from solver.experts import LoadBounds, place_layers
from solver.experts.bounds.shared_bound import SharedBound
from solver.experts.layer_slots import (
    SlotShares,
    busiest_shares,
    even_spread,
    on_chips,
    slot_choices,
    staggered,
)


def test_choices_hold_every_expert_and_end_where_asked() -> None:
    assert slot_choices(8, 4, 12, rows=True) == (8, 12)
    assert slot_choices(8, 4, 12, rows=False) == (8, 9, 10, 11, 12)
    assert slot_choices(7, 3, 11, rows=True) == (9,)
    assert slot_choices(7, 3, 11, rows=False) == (7, 8, 9, 10, 11)
    assert slot_choices(3, 4, 9, rows=False) == (4, 5, 6, 7, 8)
    assert slot_choices(2, 3, 20, rows=True) == (3, 6)


@pytest.mark.parametrize("seed", range(8))
def test_shares_equal_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers, choices = int(rng.integers(2, 5)), (6, 7, 8, 10)
    busiest = rng.uniform(0.2, 1.0, (layers, len(choices)))
    shares = SlotShares.of(busiest, choices, layers * 10)
    for budget in range(layers * 6, layers * 10 + 3):
        best = min(
            sum(busiest[layer, pick] for layer, pick in enumerate(picks))
            for picks in product(range(len(choices)), repeat=layers)
            if sum(choices[pick] for pick in picks) <= budget
        )
        chosen = shares.choose(budget)
        assert sum(chosen) <= budget
        found = sum(busiest[layer, choices.index(count)] for layer, count in enumerate(chosen))
        assert best - 1e-12 <= found <= best * 1.0005


def test_slots_that_gain_nothing_stay_free() -> None:
    shares = SlotShares.of(np.array([[0.5, 0.3, 0.3], [0.3, 0.3, 0.3]]), (4, 6, 8), 16)
    assert shares.choose(16) == (6, 4)
    assert shares.choose(9) == (4, 4)
    with pytest.raises(ValueError, match="7 slots for 2 layers of 4 or more"):
        shares.choose(7)


@pytest.mark.parametrize("seed", range(2))
def test_bound_is_below_every_share_of_the_slots(seed: int) -> None:
    rng = np.random.default_rng(seed)
    loads = rng.lognormal(0.0, 1.2, (3, 6))
    chips, most = 3, 10
    counts = range(6, most + 1)
    busiest = np.stack(
        [place_layers(loads, even_spread(n, chips), effort="good").max_load for n in counts], axis=1
    )
    bounds = SharedBound(LoadBounds(loads), chips, most)
    for budget in range(18, 31):
        mean, least = bounds.mean_and_least(budget)
        for picks in product(range(len(counts)), repeat=3):
            if sum(counts[pick] for pick in picks) <= budget:
                own = busiest[np.arange(3), list(picks)]
                assert mean <= own.mean() + 1e-12
                assert least <= own.min() + 1e-12


def test_more_slots_never_raise_the_bound() -> None:
    loads = np.random.default_rng(5).lognormal(0.0, 1.0, (4, 32))
    bounds = SharedBound(LoadBounds(loads), 16, 64)
    means = [bounds.mean_and_least(4 * slots)[0] for slots in range(32, 65)]
    assert all(after <= before * (1 + 1e-9) for before, after in pairwise(means))
    assert means[0] > means[8] * 1.1


def test_search_finds_where_slots_help() -> None:
    loads = np.ones((2, 16))
    loads[1, 0] = 15.0
    choices = slot_choices(16, 8, 32, rows=False)
    busiest = busiest_shares(loads, 8, choices)
    assert SlotShares.of(busiest, choices, 64).choose(36)[0] == 16
    assert SlotShares.of(busiest, choices, 64).choose(36)[1] > 16


@pytest.mark.parametrize(
    ("counts", "chips"), [((9, 10, 8, 11, 13), 4), ((7, 7, 7), 5), ((8, 12), 4)]
)
def test_chips_hold_equally_many_over_all_layers(counts: tuple[int, ...], chips: int) -> None:
    slots = staggered(counts, chips)
    assert [sum(own) for own in slots] == list(counts)
    assert all(max(own) - min(own) <= 1 for own in slots)
    held = np.sum(slots, axis=0)
    assert held.max() - held.min() <= 1


def test_turned_chips_keep_their_experts() -> None:
    row = (0, 1, 2, 3, 4, 5, 6, 7)  # chips of 3, 3 and 2 slots
    assert on_chips(row, (3, 3, 2)) == row
    assert on_chips(row, (2, 3, 3)) == (6, 7, 0, 1, 2, 3, 4, 5)
    assert on_chips(row, (3, 2, 3)) == (3, 4, 5, 6, 7, 0, 1, 2)
