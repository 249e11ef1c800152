"""Several workloads, nodes with groups, move budgets and affinity."""

from itertools import combinations_with_replacement, permutations

import numpy as np
import pytest

from costmodel.experts.dispatch import check_placement, chip_loads, imbalance
from costmodel.experts.expert_load import skewed_load
from costmodel.experts.fanout import remote_copies
from solver.experts import place_layers, place_windows
from solver.experts.bounds.windows_bound import replica_bound
from solver.experts.nodes.abroad import spend_abroad
from solver.experts.nodes.affinity import crossings, group_by_affinity
from solver.experts.nodes.copies import Fanout, Routing
from solver.experts.nodes.grouped import place_on_nodes
from solver.experts.packing import pack_largest_first
from solver.experts.rebalance import rebalance
from solver.experts.replicas import greedy_replicas
from solver.experts.slots import Slots
from solver.experts.windows.pair_windows import matched, pair_windows
from solver.experts.windows.window_search import WindowSearch
from tests.solver.experts.fan_out import EXPERTS, check_changes, four_to_a_node
from topology.errors import InstanceError


def windows_of(seed, experts=64, layers=3, count=3):
    base = skewed_load(layers, experts, seed=seed)
    rng = np.random.default_rng(seed)
    return np.stack([base * rng.lognormal(0, 0.4, base.shape) for _ in range(count)])


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("width", [2, 5])
def test_one_placement_for_several_windows_beats_the_summed_one(objective, width):
    windows, chips = windows_of(1), 80 // width
    found = place_windows(windows, [width] * chips, objective=objective)
    check_placement(found.physical_to_logical, 64, width)
    assert (found.bound <= found.expected * (1 + 1e-9)).all()
    summed = place_layers(windows.sum(axis=0), [width] * chips).physical_to_logical
    peaks = np.stack([chip_loads(summed, window, width).max(axis=1) for window in windows])
    value = peaks.max(axis=0) if objective == "worst" else peaks.mean(axis=0)
    assert found.expected.mean() < value.mean()


@pytest.mark.parametrize("worst", [False, True])
def test_replica_bound_is_the_least_over_all_replica_counts(worst):
    rng = np.random.default_rng(3)
    for _ in range(4):
        shares = rng.lognormal(0, 1.2, (3, 5))
        shares /= shares.sum(axis=1, keepdims=True)
        weight = np.array([0.5, 0.25, 0.25])
        values = []
        for spare in combinations_with_replacement(range(5), 3):
            counts = np.minimum(1 + np.bincount(spare, minlength=5), 4)
            peak = np.maximum((shares / counts).max(axis=1), 1 / 4)
            values.append(peak.max() if worst else weight @ peak)
        bound = replica_bound(shares, weight, worst, chips=4, slots=8, effort=1.0)
        assert bound <= min(values) * (1 + 1e-12)
        assert bound == pytest.approx(min(values), rel=1e-4)


@pytest.mark.parametrize("worst", [False, True])
def test_pairs_match_the_best_of_all_pairings_of_large_with_small(worst):
    shares = windows_of(5, experts=6, layers=2)
    shares /= shares.sum(axis=2, keepdims=True)
    weight = np.full(3, 1 / 3)
    for layer, replicas in enumerate(np.array([[2, 1, 1, 2, 1, 1], [1, 1, 2, 1, 2, 1]])):
        piece = shares[:, layer] * 4 / replicas
        base, row = piece.max(axis=1) + piece.min(axis=1), np.empty(0, dtype=np.int64)
        for sharpness in (40.0, 120.0):
            row = matched(piece, replicas, weight, worst, base, sharpness)
            base = piece[:, row].sum(axis=2).max(axis=1)
        np.testing.assert_array_equal(np.bincount(row.ravel(), minlength=6), replicas)
        assert (row[:, 0] != row[:, 1]).all()
        values = []
        for order in permutations(row[:, 1]):
            if (row[:, 0] != order).all():
                peak = (piece[:, row[:, 0]] + piece[:, list(order)]).max(axis=1)
                values.append(peak.max() if worst else peak.mean())
        assert (base.max() if worst else base.mean()) <= min(values) * 1.02


@pytest.mark.parametrize("worst", [False, True])
def test_more_replica_counts_tried_are_never_worse_and_workers_change_nothing(worst):
    shares = windows_of(6, experts=32, layers=3)
    shares /= shares.sum(axis=2, keepdims=True)
    weight, floor = np.array([0.5, 0.3, 0.2]), np.zeros(3)

    def value(trials, workers=1):
        table = pair_windows(
            shares, weight, worst, 20, floor, trials=trials, seed=0, workers=workers
        )
        peak = np.stack([chip_loads(table.reshape(3, -1), one, 2).max(axis=1) for one in shares])
        return table, peak.max(axis=0) if worst else weight @ peak

    few, (table, many) = value(1)[1], value(40)
    assert (many <= few + 1e-12).all()
    assert (many < few - 1e-6).any()
    np.testing.assert_array_equal(value(40, workers=2)[0], table)


def test_a_descent_never_ends_above_its_start_and_keeps_the_replicas():
    shares = windows_of(7, experts=40, layers=4)
    shares /= shares.sum(axis=2, keepdims=True)
    weight = np.full(3, 1 / 3)
    for counts in [(5,) * 10, (3,) * 16, (5, 5, 5, 5, 4, 4, 4, 4, 4, 4, 4)]:
        slots = Slots(counts)
        replicas = greedy_replicas(shares.max(axis=0), slots.total, slots.num_chips)
        start = pack_largest_first(shares.mean(axis=0), replicas, slots)
        search = WindowSearch(shares, weight, False, replicas, slots.num_chips)
        found, value = search.anneal(start, 60, slots.least, 0)
        assert (value < search.value(search.loads(start))).all()
        np.testing.assert_allclose(value, search.value(search.loads(found)), rtol=1e-5)
        for layer in range(4):
            times = np.bincount(found[layer].ravel(), minlength=41)[:40]
            np.testing.assert_array_equal(times, replicas[layer])


def test_workers_change_nothing_in_a_placement_of_several_windows():
    windows = windows_of(8, experts=16, layers=20)
    one, two = (place_windows(windows, [3] * 6, workers=workers) for workers in (1, 2))
    np.testing.assert_array_equal(one.physical_to_logical, two.physical_to_logical)


def test_weights_choose_the_window_that_counts():
    windows = windows_of(2)
    only = place_windows(windows, [5] * 16, weights=[1, 0, 0])
    np.testing.assert_allclose(only.expected, only.max_load[0])
    with pytest.raises(InstanceError):
        place_windows(windows, [5] * 16, weights=[0, 0, 0])


@pytest.mark.parametrize("abroad", [0, 2, None])
def test_nodes_hold_their_groups_and_every_expert(abroad):
    loads = skewed_load(3, 64, seed=4)
    placed = place_on_nodes(loads, 16, 80, chips_per_node=4, groups=8, abroad=abroad)
    check_placement(placed.physical_to_logical, 64, 5)
    if abroad == 0:
        node = np.arange(80) // 20
        for row in placed.physical_to_logical:
            homes = {tuple(np.unique(node[row // 8 == group])) for group in range(8)}
            assert all(len(home) == 1 for home in homes)


def test_spare_slots_abroad_even_out_nodes():
    loads = skewed_load(4, 64, seed=5)
    home, abroad = (
        place_on_nodes(loads, 16, 80, chips_per_node=4, groups=8, abroad=a).max_load
        for a in (0, None)
    )
    assert abroad.mean() < home.mean()


def test_a_price_on_copies_lowers_them():
    loads, node = skewed_load(3, 64, seed=6), np.arange(80) // 20
    copies = []
    for price in (0.0, 5.0):
        routing = Routing(top_k=4, top_groups=4, price=price)
        placed = place_on_nodes(loads, 16, 80, chips_per_node=4, groups=8, routing=routing)
        copies.append(
            remote_copies(
                placed.physical_to_logical,
                loads,
                node,
                top_k=4,
                num_groups=8,
                top_groups=4,
                local_first=True,
            ).mean()
        )
    assert copies[1] < copies[0]


def test_incremental_copies_agree_with_the_evaluator():
    share, held = skewed_load(1, EXPERTS, seed=7)[0], four_to_a_node()

    def copies(row, node):
        return remote_copies(
            row, share[None], node, top_k=4, num_groups=4, top_groups=2, local_first=True
        )[0]

    check_changes(Fanout(share[None], held[None], Routing(4, 2, 1.0), 4), held, copies)


def test_a_hot_expert_goes_to_every_node_at_once_where_copies_cost():
    share = np.ones(32)
    share[5] = 12.0
    home = np.arange(32) // 8
    held = spend_abroad(
        share[None] / share.sum(), home[None], 4, 2, 4, 1, Routing(top_k=4, top_groups=4, price=1.0)
    )[0]
    assert held[5].tolist() == [1, 1, 1, 1]
    assert (held.sum(axis=0) <= 9).all()
    assert (held[np.arange(32), home] == 1).all()


@pytest.mark.parametrize("arguments", [{"groups": 7}, {"chips_per_node": 5}, {"groups": 2}])
def test_nodes_that_do_not_divide_are_refused(arguments):
    with pytest.raises(InstanceError):
        place_on_nodes(
            skewed_load(1, 64, seed=0), 16, 80, **{"chips_per_node": 4, "groups": 8, **arguments}
        )


@pytest.mark.parametrize("most", [0, 1, 5, 40])
def test_rebalance_stays_within_its_moves_and_never_gets_worse(most):
    old, new = skewed_load(3, 32, seed=8), skewed_load(3, 32, seed=9)
    current = place_layers(old, [5] * 8).physical_to_logical
    before = chip_loads(current, new, 5).max(axis=1)
    placed, moves = rebalance(new, current, (5,) * 8, max_moves=most)
    check_placement(placed.physical_to_logical, 32, 5)
    assert moves.sum() <= most
    assert (placed.max_load <= before * (1 + 1e-9)).all()
    written = sum(
        len(set(new_chip) - set(old_chip))
        for new_row, old_row in zip(placed.physical_to_logical, current, strict=True)
        for new_chip, old_chip in zip(new_row.reshape(8, 5), old_row.reshape(8, 5), strict=True)
    )
    assert written == moves.sum()
    if most == 40:
        assert placed.max_load.mean() < before.mean()


def test_more_moves_never_cost_balance():
    old, new = skewed_load(2, 32, seed=10), skewed_load(2, 32, seed=11)
    current = place_layers(old, [5] * 8).physical_to_logical
    peaks = [
        rebalance(new, current, (5,) * 8, max_moves=m)[0].max_load.mean() for m in (0, 2, 8, 30)
    ]
    assert peaks == sorted(peaks, reverse=True)


def test_affinity_finds_planted_domains():
    rng = np.random.default_rng(0)
    group = np.stack([rng.permutation(np.repeat(np.arange(4), 4)) for _ in range(3)])
    pairs = [10.0 * (group[a][:, None] == group[a + 1][None, :]) + 0.1 for a in range(2)]
    domain = group_by_affinity(pairs, np.ones((3, 16)), 4)
    assert all((np.bincount(row, minlength=4) == 4).all() for row in domain)
    assert crossings(pairs, domain) == pytest.approx(crossings(pairs, group))


def test_windows_of_one_match_the_evaluator():
    loads = skewed_load(2, 32, seed=12)
    found = place_windows(loads[None], [5] * 8)
    ratio = imbalance(chip_loads(found.physical_to_logical, loads, 5))
    np.testing.assert_allclose(ratio, found.max_load[0] * 8)
