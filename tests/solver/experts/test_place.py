"""Placements are valid, proven, reproducible, and never worse than EPLB."""

from collections.abc import Iterator
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.baselines.eplb import chip_loads as eplb_loads
from benchmarks.baselines.eplb import eplb
from costmodel.experts.dispatch import check_placement, chip_loads, imbalance
from costmodel.experts.expert_load import skewed_load
from solver.experts import load_bounds, place, place_layers
from solver.experts.replicas import LargestPieces, greedy_replicas
from topology.errors import InstanceError


def every_table(experts: int, chips: int, width: int) -> Iterator[np.ndarray]:
    """All slot tables without repeats, chips interchangeable."""
    from itertools import combinations

    rows = list(combinations(range(experts), width))
    for choice in combinations_with_replacement(rows, chips):
        if len({e for row in choice for e in row}) == experts:
            yield np.array(choice).ravel()


def exhaustive_optimum(loads, chips, width):
    best = np.inf
    for row in every_table(len(loads), chips, width):
        best = min(best, chip_loads(row[None], loads[None], width)[0].max())
    return best


SMALL = [
    (4, 2, 2),
    (4, 3, 2),
    (5, 3, 2),
    (6, 3, 2),
    (6, 2, 3),
    (6, 3, 3),
    (5, 4, 2),
    (7, 4, 2),
    (4, 4, 3),
]


@pytest.mark.parametrize(("experts", "chips", "width"), SMALL)
def test_optimum_of_small_layers_is_found_and_proven(experts, chips, width):
    loads = np.random.default_rng(experts * 100 + chips).lognormal(0, 1, (3, experts))
    placed = place_layers(loads, [width] * chips, effort="best")
    for layer, load in enumerate(loads):
        optimum = exhaustive_optimum(load, chips, width)
        assert placed.max_load[layer] == pytest.approx(optimum, rel=2e-4)
        assert placed.bound[layer] <= optimum * (1 + 1e-9)
        assert load_bounds(loads, chips, chips * width)[layer] <= optimum * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("chips", [2, 3, 4])
@pytest.mark.parametrize("experts", [8, 10, 12])
def test_twelve_experts_without_spare_slots(experts, chips):
    if experts % chips:
        pytest.skip("uneven")
    loads = np.random.default_rng(experts).lognormal(0, 1, (4, experts))
    placed = place_layers(loads, [experts // chips] * chips, effort="best")
    for layer, load in enumerate(loads):
        share, best = load / load.sum(), np.inf
        for owner in product(range(chips), repeat=experts - 1):
            owner = np.array((0, *owner))
            if (np.bincount(owner, minlength=chips) == experts // chips).all():
                best = min(best, np.bincount(owner, weights=share).max())
        assert placed.max_load[layer] == pytest.approx(best, rel=2e-4)
        assert placed.bound[layer] <= best * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_valid_request_gives_a_valid_placement_above_its_bound(data):
    experts = data.draw(st.integers(2, 24))
    chips = data.draw(st.integers(1, 8))
    low = -(-experts // chips)
    width = data.draw(st.integers(low, max(low, min(experts, low + 3))))
    seed = data.draw(st.integers(0, 10**6))
    sigma = data.draw(st.sampled_from([0.0, 0.5, 1.0, 3.0]))
    loads = np.random.default_rng(seed).lognormal(0, sigma, (2, experts))
    loads[loads < np.quantile(loads, 0.1)] = 0
    effort = data.draw(st.sampled_from(["fast", "fast", "good"]))
    if experts * chips > 60:
        effort = "fast"
    placed = place_layers(loads, [width] * chips, effort=effort, seed=seed)
    check_placement(placed.physical_to_logical, experts, width)
    assert (placed.max_load >= placed.bound * (1 - 1e-9)).all()
    even = loads.sum(axis=1) > 0
    load = chip_loads(placed.physical_to_logical[even], loads[even], width)
    np.testing.assert_allclose(load.max(axis=1), placed.max_load[even], rtol=1e-9)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), chips=st.integers(1, 12), spare=st.integers(0, 20))
def test_bounds_hold_for_random_placements(seed, chips, spare):
    rng = np.random.default_rng(seed)
    experts = int(rng.integers(2, 24))
    width = -(-(experts + min(spare, experts * (chips - 1))) // chips)
    width = min(width, experts)
    if width * chips < experts:
        return
    loads = rng.lognormal(0, 1.5, (1, experts))
    bound = load_bounds(loads, chips, width * chips)
    for _ in range(20):
        table = np.stack([rng.permutation(experts)[:width] for _ in range(chips)])
        missing = np.setdiff1d(np.arange(experts), table)
        if missing.size:
            continue
        peak = chip_loads(table.reshape(1, -1), loads, width).max()
        assert bound[0] <= peak * (1 + 1e-12)


@pytest.mark.parametrize(
    ("chips", "slots"), [(8, 72), (16, 80), (16, 64), (32, 64), (36, 72), (24, 72), (72, 72)]
)
def test_never_worse_than_eplb(chips, slots):
    loads = skewed_load(6, 64, seed=chips)
    placed = place_layers(loads, [slots // chips] * chips)
    theirs = eplb_loads(loads, eplb(loads, slots, chips), chips)
    assert (placed.max_load <= theirs.max(axis=1) * (1 + 1e-9)).all()
    fast = place_layers(loads, [slots // chips] * chips, effort="fast")
    assert fast.max_load.mean() <= theirs.max(axis=1).mean() * (1 + 1e-9)


@pytest.mark.parametrize(("chips", "slots"), [(32, 288), (64, 320), (72, 288)])
def test_generated_loads_are_proven_within_a_thousandth(chips, slots):
    placed = place_layers(skewed_load(12, 256, seed=1), [slots // chips] * chips)
    assert placed.gap.max() <= 1e-3


def test_one_slot_per_chip_is_exact():
    placed = place_layers(skewed_load(5, 32, seed=3), [1] * 40)
    np.testing.assert_allclose(placed.max_load, placed.bound, rtol=1e-9)


def test_uneven_slots_without_redundancy():
    loads = skewed_load(4, 14, seed=0)
    placed = place_layers(loads, [4, 4, 3, 3])
    check_placement(placed.physical_to_logical, 14, [4, 4, 3, 3])
    assert (placed.bound <= placed.max_load).all()


def test_uneven_slots_with_redundancy_hold_no_expert_twice_on_a_chip():
    placed = place_layers(skewed_load(1, 14, seed=0), [6, 5, 5])
    check_placement(placed.physical_to_logical, 14, [6, 5, 5])


def test_same_seed_same_placement_whatever_the_workers():
    loads = skewed_load(6, 64, seed=9)
    first = place_layers(loads, [2] * 36, seed=4, workers=1)
    second = place_layers(loads, [2] * 36, seed=4, workers=2)
    np.testing.assert_array_equal(first.physical_to_logical, second.physical_to_logical)


def test_scale_of_loads_does_not_matter():
    loads = skewed_load(3, 32, seed=2)
    first = place_layers(loads, [5] * 8)
    second = place_layers(loads * 2.0**40, [5] * 8)
    np.testing.assert_allclose(first.max_load, second.max_load, rtol=1e-9)


@pytest.mark.parametrize("slots", [[1, 1], [5, 5], [0, 8], []])
def test_impossible_slots_are_refused(slots):
    with pytest.raises(InstanceError):
        place_layers(np.ones((1, 4)), slots)


@pytest.mark.parametrize(
    "loads", [np.ones(4), np.full((1, 4), np.nan), -np.ones((1, 4)), np.ones((0, 4))]
)
def test_impossible_loads_are_refused(loads):
    with pytest.raises(InstanceError):
        place_layers(loads, [2, 2])


def test_a_time_limit_still_gives_a_valid_placement():
    loads = skewed_load(8, 128, seed=5)
    placed = place_layers(loads, [2] * 72, time_limit_s=0.0)
    check_placement(placed.physical_to_logical, 128, 2)
    assert (
        imbalance(chip_loads(placed.physical_to_logical, loads, 2))
        >= placed.bound * 72 * (1 - 1e-9)
    ).all()


def test_largest_pieces_of_all_spare_slots_equal_the_greedy_rule_run_for_each() -> None:
    rng = np.random.default_rng(3)
    for _ in range(40):
        experts = int(rng.integers(2, 12))
        shares = rng.lognormal(0.0, 1.2, (4, experts))
        shares /= shares.sum(axis=1, keepdims=True)
        pieces = LargestPieces(shares)
        for _ in range(12):
            most = int(rng.integers(1, 9))
            slots = int(rng.integers(experts, experts * most + 1))
            expected = (shares / greedy_replicas(shares, slots, most)).max(axis=1)
            assert np.array_equal(pieces.largest(slots - experts, most), expected)


def test_a_short_search_of_pairs_beats_eplb():
    loads = skewed_load(12, 64, seed=3)
    theirs = eplb_loads(loads, eplb(loads, 80, 40), 40)
    theirs = theirs.max(axis=1) / theirs.sum(axis=1)
    ours = place_layers(loads, [2] * 40, effort="fast")
    assert (ours.max_load <= theirs * (1 + 1e-9)).all()
    assert ours.max_load.mean() < theirs.mean()


def test_layers_with_the_same_loads_are_placed_once(monkeypatch):
    loads = skewed_load(4, 24, seed=3)[[0, 1, 0, 2, 1, 3]]
    apart = place_layers(loads[[0, 1, 3, 5]], [5] * 6)
    rows, plain = [], place.construct

    def construct(shares, *given, **named):
        rows.append(len(shares))
        return plain(shares, *given, **named)

    monkeypatch.setattr(place, "construct", construct)
    found = place_layers(loads, [5] * 6)
    assert rows == [4]
    like = [0, 1, 0, 2, 1, 3]
    assert (found.physical_to_logical == apart.physical_to_logical[like]).all()
    assert (found.max_load == apart.max_load[like]).all()
    assert (found.bound == apart.bound[like]).all()
