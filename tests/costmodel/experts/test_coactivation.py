"""Copies from experts used together: counted, estimated, enclosed; files read safely, refused clearly."""

import json
from math import comb

import numpy as np
import pytest

from costmodel.experts.coactivation import (
    CoActivation,
    pair_shares,
    together_copies,
    touch_bounds,
    touch_estimate,
)
from costmodel.experts.coactivation_files import read_coactivation
from costmodel.experts.expert_load import ExpertLoads
from tests.costmodel.experts.torch_dumps import torch_file
from topology.errors import InstanceError

LAYERS, EXPERTS, TOP_K = 3, 16, 4


def drawn(tokens, seed=0, strength=1.5):
    """Experts of tokens ``[tokens, layers, top_k]`` that follow one of six topics."""
    rng = np.random.default_rng(seed)
    topics = np.random.default_rng(7).normal(0, strength, (LAYERS, 6, EXPERTS))
    topic = rng.integers(6, size=tokens)
    score = [topics[layer, topic] + rng.gumbel(size=(tokens, EXPERTS)) for layer in range(LAYERS)]
    return np.stack([np.argsort(-one, axis=1)[:, :TOP_K] for one in score], axis=1)


def loads_of(picks, dense=0):
    counts = [np.bincount(picks[:, layer].ravel(), minlength=EXPERTS) for layer in range(LAYERS)]
    ids = tuple(range(dense, dense + LAYERS))
    return ExpertLoads(np.array([counts], dtype=float), ids, dense + LAYERS, ("a",), "counts.npy")


PICKS = drawn(400)
LOADS = loads_of(PICKS)
PAIRS = np.rint(pair_shares(PICKS, EXPERTS) * len(PICKS))


@pytest.mark.parametrize("local_first", [False, True])
def test_counted_copies_are_those_of_every_token_and_source(local_first):
    rng = np.random.default_rng(1)
    table = np.stack([np.append(rng.permutation(EXPERTS), [3, 5, 8, 11]) for _ in range(LAYERS)])
    node = np.arange(20) % 4
    known = CoActivation(pair_shares(PICKS, EXPERTS), TOP_K, "x", PICKS, PICKS[:100])
    found = together_copies(table, known, node, local_first=local_first).value
    for layer in range(LAYERS):
        total = 0.0
        for picks in PICKS[:, layer]:
            for source in range(4):
                stays = np.ones(4)
                for expert in picks:
                    at = node[table[layer] == expert]
                    if local_first and source in at:
                        continue
                    stays *= 1 - np.bincount(at, minlength=4) / len(at)
                total += np.delete(1 - stays, source).sum() / 4
        assert found[layer] == pytest.approx(total / len(PICKS))


def test_bounds_enclose_every_distribution_and_the_estimate_lies_between():
    rng = np.random.default_rng(2)
    number = np.arange(TOP_K + 1)
    odds = rng.dirichlet(np.full(TOP_K + 1, 0.4), 2000)
    mean, pairs = odds @ number, odds @ (number * (number - 1) / 2)
    least, most = touch_bounds(mean, pairs, TOP_K)
    true = 1 - odds[:, 0]
    assert (least <= true + 1e-12).all()
    assert (true <= most + 1e-12).all()
    estimate = touch_estimate(mean, pairs, TOP_K)
    assert ((least <= estimate) & (estimate <= most)).all()


def test_the_estimate_is_exact_for_draws_without_replacement_and_for_independent_ones():
    here = 5
    mean = np.array(TOP_K * here / EXPERTS)
    pairs = np.array(comb(TOP_K, 2) * here * (here - 1) / (EXPERTS * (EXPERTS - 1)))
    none = comb(EXPERTS - here, TOP_K) / comb(EXPERTS, TOP_K)
    assert touch_estimate(mean, pairs, TOP_K) == pytest.approx(1 - none)
    share = 0.3
    mean, pairs = np.array(TOP_K * share), np.array(comb(TOP_K, 2) * share**2)
    assert touch_estimate(mean, pairs, TOP_K) == pytest.approx(1 - (1 - share) ** TOP_K)


@pytest.mark.parametrize("local_first", [False, True])
@pytest.mark.parametrize("strength", [0.0, 1.0, 3.0])
def test_pairs_estimate_what_tokens_count_and_enclose_it(strength, local_first):
    picks = drawn(3000, seed=3, strength=strength)
    table = np.tile(np.arange(EXPERTS), (LAYERS, 1))
    node = np.arange(EXPERTS) // 4
    pairs = pair_shares(picks, EXPERTS)
    counted = together_copies(table, CoActivation(pairs, TOP_K, "x", picks), node).value
    estimated = together_copies(
        table, CoActivation(pairs, TOP_K, "x"), node, local_first=local_first
    )
    np.testing.assert_allclose(estimated.value, counted, rtol=0.04)
    assert (estimated.least <= counted + 1e-9).all()
    assert (counted <= estimated.most + 1e-9).all()


def write(path, array):
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        np.savez(path, one=array)
    else:
        path.write_text(json.dumps(array.tolist()))
    return path


@pytest.mark.parametrize("suffix", ["npy", "npz", "json"])
def test_tokens_are_halved_and_pairs_are_shares(tmp_path, suffix):
    by_token = read_coactivation(write(tmp_path / f"t.{suffix}", PICKS), LOADS)
    assert by_token.top_k == TOP_K
    np.testing.assert_array_equal(by_token.picks, PICKS[:200])
    np.testing.assert_array_equal(by_token.held_out, PICKS[200:])
    np.testing.assert_allclose(by_token.pairs, pair_shares(PICKS[:200], EXPERTS))
    by_pair = read_coactivation(write(tmp_path / f"p.{suffix}", PAIRS), LOADS)
    assert (by_pair.top_k, by_pair.picks, by_pair.held_out) == (TOP_K, None, None)
    np.testing.assert_allclose(by_pair.pairs, pair_shares(PICKS, EXPERTS))


def test_a_diagonal_that_is_left_out_follows_from_the_experts_per_token(tmp_path):
    bare = PAIRS * (1 - np.eye(EXPERTS))
    found = read_coactivation(write(tmp_path / "p.npy", bare), LOADS, top_k=TOP_K)
    np.testing.assert_allclose(found.pairs, pair_shares(PICKS, EXPERTS))


def test_several_arrays_are_added_up_and_rows_of_dense_layers_left_out(tmp_path):
    np.savez(tmp_path / "p.npz", a=PAIRS, b=2 * PAIRS)
    found = read_coactivation(tmp_path / "p.npz", LOADS)
    np.testing.assert_allclose(found.pairs, pair_shares(PICKS, EXPERTS))
    whole = np.concatenate([np.full((400, 2, TOP_K), -1), PICKS], axis=1)
    np.savez(tmp_path / "t.npz", a=whole[:100], b=whole[100:])
    found = read_coactivation(tmp_path / "t.npz", loads_of(PICKS, dense=2))
    halves = (
        np.concatenate([PICKS[:50], PICKS[100:250]]),
        np.concatenate([PICKS[50:100], PICKS[250:]]),
    )
    np.testing.assert_array_equal(found.picks, halves[0])
    np.testing.assert_array_equal(found.held_out, halves[1])


def test_incomplete_tokens_are_dropped_and_counted(tmp_path):
    picks = PICKS.copy()
    picks[[4, 9], 1, 2] = -1
    found = read_coactivation(write(tmp_path / "t.npy", picks), LOADS)
    assert (found.dropped, len(found.picks) + len(found.held_out)) == (2, 398)


def changed(array, at, value):
    array = array.astype(float) if isinstance(value, float) else array.copy()
    array[at] = value
    return array


def without(expert, layer=1):
    picks = PICKS.copy()
    free = [np.setdiff1d(np.arange(EXPERTS), [*row, expert])[0] for row in picks[:, layer]]
    picks[:, layer] = np.where(picks[:, layer] == expert, np.array(free)[:, None], picks[:, layer])
    return picks


HOT = int(LOADS.total[1].argmax())


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (PAIRS[:2], r"got shape \[2, 16, 16\]"),
        (PAIRS[:, :8], "expected pair counts"),
        (PICKS[0], "expected pair counts"),
        (
            changed(PAIRS, (1, 2, 3), np.nan),
            "1 counts are not usable numbers, first nan in layer 1",
        ),
        (changed(PAIRS, (1, 2, 3), np.inf), "first inf in layer 1, experts 2 and 3"),
        (changed(PAIRS, (1, 2, 3), 1e308), "first 1e"),
        (changed(PAIRS, (1, 2, 3), -4.0), "1 counts are negative, first -4 in layer 1"),
        (changed(PAIRS, (1, 2, 3), 999.0), "not symmetric: layer 1 has 999 for experts 2 and 3"),
        (changed(PAIRS, 1, 0.0), "1 layers are all zero beside the diagonal, first layer 1"),
        (changed(PAIRS, (1, 5, 5), 999.0), "expert 5 has 999 tokens on the diagonal"),
        (changed(PICKS, (7, 1, 2), 16), "first 16 of token 7 in layer 1; expected 0 to 15"),
        (changed(PICKS, (7, 1, 2), -2), "first -2 of token 7"),
        (
            changed(PICKS, (7, 1), 3),
            "1 times a token has an expert twice, first token 7 in layer 1",
        ),
        (PICKS.astype(float), "expected whole numbers"),
        (PICKS[:, :, :0], "expected pair counts"),
        (PICKS[:1], "1 tokens with experts in every layer"),
        (PICKS[:, :, :1], "1 experts per token"),
        (np.full_like(PICKS, -1), "0 experts per token"),
        (without(HOT), f"first expert {HOT} of layer 1"),
    ],
)
def test_wrong_arrays_are_refused_with_their_place(tmp_path, array, why):
    with pytest.raises(InstanceError, match=why):
        read_coactivation(write(tmp_path / "a.npy", array), LOADS)


def test_every_fault_is_told_at_once(tmp_path):
    pairs = changed(PAIRS, (0, 2, 3), 999.0)
    pairs[1, 4, 4] = np.nan
    pairs[2] = 0
    with pytest.raises(InstanceError) as refused:
        read_coactivation(write(tmp_path / "a.npy", pairs), LOADS)
    assert len(refused.value.problems) == 3


def test_another_top_k_and_pairs_that_need_more_experts_are_refused(tmp_path):
    for array in (PAIRS, PICKS):
        with pytest.raises(InstanceError, match=r"--top-k: 3, but .* has 4 experts per token"):
            read_coactivation(write(tmp_path / "a.npy", array), LOADS, top_k=3)
    alone = np.zeros_like(PAIRS)
    alone[:, 0, 1] = alone[:, 1, 0] = 5
    alone[:, 2:, 2:] = 1 - np.eye(EXPERTS - 2)
    with pytest.raises(InstanceError, match="5 tokens use experts 0 and 1, but only"):
        read_coactivation(write(tmp_path / "a.npy", alone), LOADS, top_k=TOP_K)
    with pytest.raises(InstanceError, match="need 2 or more"):
        read_coactivation(write(tmp_path / "a.npy", alone), LOADS, top_k=1)


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.csv", b"1,2", "unknown kind of file"),
        ("a.npy", b"rubbish", "cannot be read"),
        ("a.npz", b"PK rubbish", "cannot be read"),
        ("a.json", b"[[1, [2]]]", "rows of different lengths"),
        ("a.json", b"{}", "no arrays"),
        ("a.json", b'{"topk_ids_of_layer": [1]}', "expected .layers, tokens, top_k."),
        ("a.pt", b"rubbish", "cannot be read"),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, data, why):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InstanceError, match=why):
        read_coactivation(tmp_path / name, LOADS)


def test_files_of_both_kinds_missing_and_pickled_ones_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", a=PAIRS, b=PICKS)
    with pytest.raises(InstanceError, match="both pair counts and"):
        read_coactivation(tmp_path / "a.npz", LOADS)
    with pytest.raises(InstanceError, match="No such file"):
        read_coactivation(tmp_path / "b.npz", LOADS)
    np.save(tmp_path / "a.npy", np.array([{"x": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InstanceError, match="pickled"):
        read_coactivation(tmp_path / "a.npy", LOADS)


def test_a_recorder_dump_of_slots_is_read_as_experts(tmp_path, monkeypatch):
    rng = np.random.default_rng(5)
    table = np.stack([rng.permutation(np.append(np.arange(EXPERTS), [3, 4])) for _ in range(4)])
    slots = np.full((4, 400, TOP_K + 2), -1)
    for layer in range(LAYERS):
        first = np.argsort(table[layer + 1], kind="stable")
        at = first[np.searchsorted(np.sort(table[layer + 1]), np.arange(EXPERTS))]
        slots[layer + 1, :, :TOP_K] = at[PICKS[:, layer]]
    records = [
        {"rank": 0, "forward_mode": 2, "topk_ids_of_layer": part, "misc_objects": []}
        for part in (slots[:, :150], slots[:, 150:])
    ]
    dump = {"records": records, "last_physical_to_logical_map": table}
    loads = loads_of(PICKS, dense=1)
    found = read_coactivation(torch_file(tmp_path / "a.pt", monkeypatch, dump), loads)
    np.testing.assert_array_equal(np.concatenate([found.picks, found.held_out]), PICKS)
    for wrong, why in (
        ({"records": []}, "per_token"),
        ({"records": [{"rank": 0}], "last_physical_to_logical_map": table}, "per_token"),
        ({"records": records}, "last_physical_to_logical_map"),
        ({"records": records, "last_physical_to_logical_map": table[:, :9]}, "of 9 slots"),
    ):
        with pytest.raises(InstanceError, match=why):
            read_coactivation(torch_file(tmp_path / "a.pt", monkeypatch, wrong), loads)
