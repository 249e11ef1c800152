"""Experts that tokens use together: the search's figures are the evaluator's, planted groups are found."""

import numpy as np
import pytest

from costmodel.experts.coactivation import CoActivation, pair_shares, together_copies
from costmodel.experts.dispatch import check_placement, chip_loads, imbalance
from costmodel.experts.expert_load import skewed_load
from solver.experts.nodes.grouped import place_on_nodes
from solver.experts.nodes.together import Homes, PairFanout, Together, homes
from tests.solver.experts.fan_out import EXPERTS, NODES, check_changes, four_to_a_node

TOP_K = 4


def drawn(layers=1, tokens=600, seed=0, strength=1.5):
    """Experts of tokens ``[tokens, layers, top_k]`` that follow one of six topics."""
    rng = np.random.default_rng(seed)
    topics = rng.normal(0, strength, (layers, 6, EXPERTS))
    topic = rng.integers(6, size=tokens)
    score = [topics[layer, topic] + rng.gumbel(size=(tokens, EXPERTS)) for layer in range(layers)]
    return np.stack([np.argsort(-one, axis=1)[:, :TOP_K] for one in score], axis=1)


def planted(tokens=900, seed=0):
    """Tokens that use the four experts of one hidden group, and the group of each expert."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(NODES), TOP_K))
    members = np.stack([np.flatnonzero(group == one) for one in range(NODES)])
    return members[rng.integers(NODES, size=tokens)][:, None], group


@pytest.mark.parametrize("local_first", [False, True])
def test_incremental_copies_agree_with_the_evaluator(local_first):
    pairs, held = pair_shares(drawn(), EXPERTS), four_to_a_node()
    known = CoActivation(pairs, TOP_K, "x")

    def copies(row, node):
        return together_copies(row, known, node, local_first=local_first).value[0]

    check_changes(PairFanout(pairs, held[None], TOP_K, local_first), held, copies)


def test_experts_that_are_used_together_get_one_node():
    picks, group = planted()
    pairs = pair_shares(picks, EXPERTS)
    found = homes(np.full((1, EXPERTS), 1 / EXPERTS), NODES, Together(pairs, TOP_K, 1.0), seed=0)[0]
    for one in range(NODES):
        assert len(set(found[group == one])) == 1
    known = CoActivation(pairs, TOP_K, "x", picks)
    row = np.argsort(found, kind="stable")
    copies = together_copies(row[None], known, np.repeat(np.arange(NODES), 4)).value
    assert copies == pytest.approx((NODES - 1) / NODES)


def test_an_exchange_is_made_only_if_it_costs_less_and_its_cost_is_kept():
    pairs = pair_shares(drawn(seed=4), EXPERTS)[0]
    share = skewed_load(1, EXPERTS, seed=4)[0]
    layer = Homes(
        share, pairs, Together(pairs[None], TOP_K, 2.0), np.arange(EXPERTS) % NODES, NODES
    )
    every = np.array([(a, b) for a in range(EXPERTS) for b in range(a) if a % NODES != b % NODES])
    costs = []
    for one, other in every:
        home = np.arange(EXPERTS) % NODES
        home[one], home[other] = home[other], home[one]
        costs.append(Homes(share, pairs, Together(pairs[None], TOP_K, 2.0), home, NODES).value)
    assert layer.exchange(every[:, 0], every[:, 1])
    assert layer.value == pytest.approx(min(costs))
    np.testing.assert_array_equal(np.bincount(layer.home), np.full(NODES, 4))
    layer = Homes(
        share, pairs, Together(pairs[None], TOP_K, 2.0), np.arange(EXPERTS) % NODES, NODES
    )
    worst = every[[int(np.argmax(costs))]]
    before = layer.home.copy()
    assert not layer.exchange(worst[:, 0], worst[:, 1])
    np.testing.assert_array_equal(layer.home, before)


@pytest.mark.parametrize("local_first", [False, True])
def test_a_price_on_copies_lowers_them_and_placements_are_whole(local_first):
    picks = drawn(layers=3, seed=6)
    known = CoActivation(pair_shares(picks, EXPERTS), TOP_K, "x", picks)
    loads = np.stack(
        [np.bincount(picks[:, layer].ravel(), minlength=EXPERTS) for layer in range(3)]
    )
    copies, balance = [], []
    for price in (0.0, 8.0):
        traffic = Together(known.pairs, TOP_K, price, local_first)
        home = homes(loads / loads.sum(axis=1, keepdims=True), NODES, traffic, seed=0)
        table = place_on_nodes(
            loads, 8, 24, chips_per_node=2, groups=NODES, routing=traffic, home=home
        ).physical_to_logical
        check_placement(table, EXPERTS, 3)
        node = np.arange(24) // 6
        copies.append(together_copies(table, known, node, local_first=local_first).value.mean())
        balance.append(imbalance(chip_loads(table, loads, 3)).mean())
    assert copies[1] < copies[0]
    assert balance[0] <= balance[1] + 1e-9
