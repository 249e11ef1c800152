"""Programs that prove: no bound above a placement, no refutation of a target that can be met."""

import numpy as np
import pytest

from costmodel.experts.expert_load import skewed_load
from solver.experts.bounds.closed_form import counting_bound
from solver.experts.bounds.replica_bound import raise_bound, refuted
from solver.experts.counts import find_counts, worst_group
from solver.experts.fillers import hot_chips
from solver.experts.local.neighbourhood import place_anew
from solver.experts.local.pairs import find_pairs, improve_pairs, paired_peak
from solver.experts.packing import paired_table
from solver.experts.place import place_layers
from solver.experts.replicas import greedy_replicas


def random_counts(rng, experts, slots, most):
    counts = np.ones(experts, dtype=np.int64)
    while counts.sum() < slots:
        expert = rng.integers(experts)
        counts[expert] += counts[expert] < most
    return counts


@pytest.mark.parametrize("seed", range(12))
def test_a_reachable_target_is_never_refuted_with_two_slots(seed):
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(24, 0.8))
    counts = random_counts(rng, 24, 32, 16)
    peak = paired_peak(share, counts)
    assert not refuted(share * 16, 16, 2, peak * 16 * (1 + 1e-6))
    table = paired_table(share, counts)
    assert (np.bincount(table.ravel(), minlength=24) == counts).all()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("width", [3, 4])
def test_a_reachable_target_is_never_refuted_with_more_slots(seed, width):
    share = skewed_load(1, 24, seed=seed)[0]
    chips = 36 // width
    placed = place_layers(share[None], [width] * chips, effort="fast")
    assert not refuted(share * chips, chips, width, float(placed.max_load[0]) * chips * (1 + 1e-6))


@pytest.mark.parametrize("seed", range(4))
def test_raised_bound_stays_below_the_best_pairing(seed):
    share = skewed_load(1, 40, seed=seed)[0]
    start = greedy_replicas(share[None], 48, 24)[0]
    peak = paired_peak(share, start)
    bound = raise_bound(share, 24, 2, 1 / 24, peak, close=1e-3)
    replicas, proven = improve_pairs(share, 24, start, bound, close=1e-3, seed=0)
    assert bound <= proven <= paired_peak(share, replicas) <= peak
    rng = np.random.default_rng(seed)
    for _ in range(200):
        assert proven <= paired_peak(share, random_counts(rng, 40, 48, 24)) * (1 + 1e-9)


def test_pairs_found_meet_their_target():
    share = skewed_load(1, 32, seed=5)[0]
    hint = greedy_replicas(share[None], 40, 20)[0]
    target = paired_peak(share, hint) * 0.999
    answer = find_pairs(share, 20, target, hint, effort=1.0, seed=0)
    assert answer.refuted or answer.replicas is not None
    if answer.replicas is not None:
        assert answer.replicas.sum() == 40
        assert paired_peak(share, answer.replicas) <= target * (1 + 1e-6)


def test_counts_found_pass_every_counting_condition():
    share = skewed_load(1, 48, seed=6)[0] * 20
    hint = greedy_replicas(share[None], 60, 20)[0]
    found = find_counts(share, 20, 3, 1.2, hint, seed=0)
    assert found is not None
    assert found.sum() == 60
    assert worst_group(share, found, 1.2, 20, 3)[0] <= 1e-6


def test_hot_chips_bound_holds_and_their_experts_differ():
    share = np.random.default_rng(3).dirichlet(np.full(32, 0.3))
    placed = place_layers(share[None], [4] * 8, effort="fast")
    found = hot_chips(share, 8, 4, float(placed.max_load[0]), seed=0)
    assert found is not None
    bound, hot = found
    assert len(np.unique(hot)) == hot.size
    best = place_layers(share[None], [4] * 8, effort="best")
    assert bound <= best.max_load[0] * (1 + 1e-9)


def test_counting_bound_by_hand():
    pieces = np.array([[6.0, 3.0, 2.0, 1.0]])
    assert counting_bound(pieces, 2, 2)[0] == pytest.approx(7.0)


def test_a_neighbourhood_never_gets_worse_and_keeps_other_chips():
    loads = skewed_load(1, 24, seed=8)
    placed = place_layers(loads, [5] * 6, effort="fast")
    table = placed.physical_to_logical[0].reshape(6, 5)
    changed, bound = place_anew(loads[0], table, np.array([0, 1, 2]), effort=0.3, seed=0)
    np.testing.assert_array_equal(changed[3:], table[3:])
    counts, after = (np.bincount(t.ravel(), minlength=24) for t in (table, changed))
    before = (loads[0] / counts)[table][:3].sum(axis=1).max()
    assert (loads[0] / after)[changed][:3].sum(axis=1).max() <= before + 1e-7
    assert bound <= before + 1e-7
