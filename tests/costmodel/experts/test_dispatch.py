"""The evaluator of placements: loads per chip under each dispatch, and copies to remote nodes."""

from itertools import combinations

import numpy as np
import pytest

from costmodel.experts.dispatch import check_placement, chip_loads, imbalance, static_table
from costmodel.experts.expert_load import skewed_load
from costmodel.experts.fanout import group_choices, remote_copies
from solver.experts import place_layers
from topology.errors import InstanceError

TABLE = np.array([[0, 1, 0, 2, 3, 0]])
LOADS = np.array([[6.0, 1.0, 2.0, 3.0]])


def test_even_split_by_hand():
    np.testing.assert_allclose(chip_loads(TABLE, LOADS, 2), [[3 / 12, 4 / 12, 5 / 12]])
    np.testing.assert_allclose(imbalance(chip_loads(TABLE, LOADS, 2)), [1.25])


def test_static_dispatch_uses_own_chip_then_node_then_a_fair_table():
    table = static_table(np.array([[0, 1, 0, 2]]), 3, np.arange(4), 2)
    assert table[:, 0, 0].tolist() == [0, 0, 2, 2]
    assert set(table[:, 0, 1]) == {1}
    far = static_table(np.array([[0, 1, 0, 2, 3, 4, 5, 6]]), 7, np.arange(8), None)
    assert sorted(far[[1, 3, 4, 5, 6, 7], 0, 0].tolist()) == [0, 0, 0, 2, 2, 2]


@pytest.mark.parametrize("seed", range(5))
def test_best_split_equals_the_worst_set_of_chips(seed):
    loads = skewed_load(1, 10, seed=seed)
    table = place_layers(loads, [3] * 5, seed=seed, effort="fast").physical_to_logical
    found = chip_loads(table, loads, 3, dispatch="lp")[0]
    homes = [set(np.flatnonzero(table[0] == e) // 3) for e in range(10)]
    worst = max(
        sum(loads[0, e] for e in range(10) if homes[e] <= set(chips)) / len(chips)
        for size in range(1, 6)
        for chips in combinations(range(5), size)
    )
    assert found.max() == pytest.approx(worst, rel=1e-9)
    assert found.sum() == pytest.approx(1)
    assert found.max() <= chip_loads(table, loads, 3)[0].max() * (1 + 1e-9)


@pytest.mark.parametrize("dispatch", ["even", "sglang-static", "lp"])
def test_no_load_is_lost(dispatch):
    loads = skewed_load(3, 32, seed=1)
    table = place_layers(loads, [5] * 8).physical_to_logical
    load = chip_loads(table, loads, 5, dispatch=dispatch, chips_per_node=4)
    np.testing.assert_allclose(load.sum(axis=1), 1)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([0, 1, 2, 2], "no slot"),
        ([0, 0, 1, 2], "twice"),
        ([0, 1, 2, 9], "outside"),
        ([0, 1, 2, -1], "outside"),
    ],
)
def test_wrong_placements_are_refused(row, said):
    experts = 4 if said == "no slot" else 3
    with pytest.raises(InstanceError, match=said):
        check_placement([row], experts, 2)


def test_group_choices_reproduce_the_recorded_loads():
    loads = skewed_load(1, 64, seed=2)[0]
    odds, chance = group_choices(loads, 8, 8, 4)
    assert odds.sum() == pytest.approx(1)
    np.testing.assert_allclose(odds @ chance, 8 * loads, rtol=1e-3)


def test_remote_copies_by_hand():
    """Four experts, two per token, one node each half: a token needs the other node with 3/4."""
    table, node = np.array([[0, 1, 2, 3]]), np.array([0, 0, 1, 1])
    assert remote_copies(table, np.ones((1, 4)), node, top_k=2)[0] == pytest.approx(0.75)


def test_experts_on_every_node_need_no_copies_when_served_locally():
    table, node = np.array([[0, 1, 0, 1]]), np.array([0, 0, 1, 1])
    assert remote_copies(table, np.ones((1, 2)), node, top_k=1, local_first=True)[0] == 0
    assert remote_copies(table, np.ones((1, 2)), node, top_k=1)[0] > 0


def test_groups_at_home_need_fewer_copies_than_scattered_experts():
    loads, node = skewed_load(2, 64, seed=3), np.repeat(np.arange(4), 16)
    home = np.tile(np.arange(64), (2, 1))
    scattered = np.stack([np.random.default_rng(0).permutation(64) for _ in range(2)])
    arguments = {"top_k": 8, "num_groups": 8, "top_groups": 4}
    at_home = remote_copies(home, loads, node, **arguments)
    assert (at_home < remote_copies(scattered, loads, node, **arguments)).all()
