"""Generated loads match the published skew; recorded loads are read safely and refused clearly."""

import json
import zipfile

import numpy as np
import pytest

from costmodel.experts.expert_load import read_loads, skewed_load
from tests.costmodel.experts.torch_dumps import torch_file
from topology.errors import InstanceError

COUNTS = np.arange(1.0, 13.0).reshape(3, 4)


def statistics(load):
    ratio = load / load.mean(axis=1, keepdims=True)
    rising = np.sort(ratio, axis=1)
    chips = ratio.reshape(len(ratio), 32, -1).mean(axis=2).max(axis=1)
    groups = ratio.reshape(len(ratio), 8, -1).mean(axis=2).max(axis=1)
    return {
        "hottest": rising[:, -1].mean(),
        "hottest of any layer": rising[:, -1].max(),
        "coldest": rising[:, 0].mean(),
        "log-sigma": np.log(ratio).std(axis=1).mean(),
        "top tenth": rising[:, -25:].sum(axis=1).mean() / 256,
        "contiguous 32 chips": chips.mean() - 1,
        "hottest of 8 groups": groups.mean(),
    }


PUBLISHED = {
    "hottest": (5.6, 8.1),
    "hottest of any layer": (2.6, 13.7),
    "coldest": (0.09, 0.18),
    "log-sigma": (0.56, 0.82),
    "top tenth": (0.27, 0.35),
    "contiguous 32 chips": (1.05, 2.04),
    "hottest of 8 groups": (1.5, 2.07),
}


@pytest.mark.parametrize("seed", range(8))
def test_generated_skew_is_within_every_published_range(seed):
    found = statistics(skewed_load(58, 256, seed=seed))
    outside = {
        name: found[name]
        for name, (low, high) in PUBLISHED.items()
        if not low <= found[name] <= high
    }
    assert outside == {}


def test_generated_loads_are_shares_and_reproducible():
    load = skewed_load(3, 60, seed=1)
    np.testing.assert_allclose(load.sum(axis=1), 1)
    np.testing.assert_array_equal(load, skewed_load(3, 60, seed=1))
    with pytest.raises(InstanceError):
        skewed_load(0, 8, seed=0)


def write(path, content):
    if path.suffix == ".npy":
        np.save(path, content)
    elif path.suffix == ".npz":
        np.savez(path, **content)
    elif path.suffix == ".json":
        path.write_text(json.dumps(content))
    else:
        path.write_text(content)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.npy", COUNTS),
        ("a.npz", {"first": COUNTS}),
        ("a.json", COUNTS.tolist()),
        ("a.csv", "a,b,c,d\n1,2,3,4\n5,6,7,8\n9,10,11,12\n"),
    ],
)
def test_plain_files_hold_the_same_counts(tmp_path, name, content):
    loads = read_loads(write(tmp_path / name, content))
    np.testing.assert_array_equal(loads.total, COUNTS)
    assert loads.num_layers == 3
    assert loads.layer_ids == (0, 1, 2)


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        (",0,1,2,3\n0,1,2,3,4\n1,5,6,7,8\n2,9,10,11,12\n", (0, 1, 2)),  # pandas
        ("Layer,e0,e1,e2,e3\n3,1,2,3,4\n4,5,6,7,8\n6,9,10,11,12\n", (3, 4, 6)),
        (
            "layer_id,expert_id,count\n5,3,12\n3,0,1\n3,2,3\n3,1,2\n3,3,4\n4,0,5\n4,1,6\n4,2,7\n4,3,8\n"
            "5,0,9\n5,1,4\n5,1,6\n5,2,11\n",
            (3, 4, 5),
        ),  # SGLang up to 0.4.5
    ],
)
def test_numbers_of_layers_and_experts_are_no_counts(tmp_path, text, layers):
    loads = read_loads(write(tmp_path / "a.csv", text))
    np.testing.assert_array_equal(loads.total, COUNTS)
    assert loads.layer_ids == layers
    assert loads.num_layers == layers[-1] + 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0,1,2,3\n1,2,3,4\n", "row 1 is 0 to 3: leave it out where these number the experts"),
        (",0,1\n0,1,2\n0,3,4\n", "row 3: layer 0 comes after layer 0"),
        ("layer,a,b\n0.5,1,2\n", "row 2: expected the number of a layer, got '0.5'"),
        ("layer,expert,count\n0,-1,2\n", "row 2: expected the number of an? expert, got '-1'"),
        ("layer,a,b\n10000,1,2\n", "layer 10000: layers are numbered up to 9,999"),
        ("a,b\n1,2,3\n", "2 names above rows of 3"),
        ("a,b\n\n1,2\n3,x\n", "row 4: 'x' is not a number"),
    ],
)
def test_tables_that_may_mean_two_things_are_refused(tmp_path, text, said):
    with pytest.raises(InstanceError, match=said):
        read_loads(write(tmp_path / "a.csv", text))


def test_a_row_of_names_says_that_0_to_3_are_counts(tmp_path):
    loads = read_loads(write(tmp_path / "a.csv", "a,b,c,d\n0,1,2,3\n1,2,3,4\n"))
    np.testing.assert_array_equal(loads.total, [[0, 1, 2, 3], [1, 2, 3, 4]])


def test_sglang_counts_drop_dense_rows_and_sum_passes(tmp_path):
    steps = np.stack([np.vstack([np.zeros((1, 4)), COUNTS])] * 20)
    loads = read_loads(write(tmp_path / "a.json", {"logical_count": steps.tolist()}))
    assert loads.layer_ids == (1, 2, 3)
    assert loads.num_layers == 4
    assert loads.windows.shape == (8, 3, 4)
    np.testing.assert_array_equal(loads.total, COUNTS * 20)


def test_dense_rows_of_plain_arrays_must_be_named(tmp_path):
    path = write(tmp_path / "a.npy", np.vstack([np.zeros((2, 4)), COUNTS]))
    with pytest.raises(InstanceError, match="--dense-layers 2"):
        read_loads(path)
    assert read_loads(path, dense_layers=2).layer_ids == (2, 3, 4)
    with pytest.raises(InstanceError, match="not all zero"):
        read_loads(path, dense_layers=3)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (np.ones(4), "shape"),
        (np.ones((2, 2, 2, 2)), "shape"),
        (np.zeros((0, 4)), "shape"),
        (np.array([[1.0, np.nan]]), "not finite"),
        (np.array([[1.0, np.inf]]), "not finite"),
        (np.array([[1, -1]]), "negative"),
        (np.array([[1, 1], [0, 0]]), "all zero"),
        (np.zeros((2, 2)), "all zero"),
        (np.array([["a", "b"]]), "numbers"),
        (np.array([[1 + 1j, 2]]), "numbers"),
    ],
)
def test_wrong_arrays_are_refused_with_the_reason(tmp_path, content, said):
    with pytest.raises(InstanceError, match=said):
        read_loads(write(tmp_path / "a.npy", content))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "{"),
        ("a.json", "[[1, 2], [3]]"),
        ("a.json", '{"x": "y"}'),
        ("a.json", "{}"),
        ("a.json", "[" * 100000),
        ("a.csv", ""),
        ("a.csv", "1,2\n3\n"),
        ("a.csv", "1,2\n3,x\n"),
        ("a.npy", "not numpy"),
        ("a.npz", "not a zip"),
        ("a.pt", "not a zip"),
        ("a.txt", "1 2"),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InstanceError):
        read_loads(path)


def test_missing_file_and_folder_without_statistics_are_refused(tmp_path):
    for path in (tmp_path / "none.npy", tmp_path):
        with pytest.raises(InstanceError):
            read_loads(path)


def test_pickled_arrays_are_never_loaded(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"x": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InstanceError, match="pickled"):
        read_loads(tmp_path / "a.npy")


def test_recorder_dump_is_read_without_torch(tmp_path, monkeypatch):
    steps = np.stack([np.vstack([np.zeros((1, 4)), COUNTS])] * 2).astype(np.int64)
    loads = read_loads(
        torch_file(tmp_path / "a.pt", monkeypatch, {"rank": 0, "logical_count": steps})
    )
    np.testing.assert_array_equal(loads.total, COUNTS * 2)
    assert loads.layer_ids == (1, 2, 3)


def test_a_dump_with_anything_else_in_it_is_refused(tmp_path, monkeypatch):
    dump = {"rank": 0, "logical_count": COUNTS.astype(np.int64), "x": zipfile.ZipFile}
    path = torch_file(tmp_path / "a.pt", monkeypatch, dump)
    with pytest.raises(InstanceError, match="never loaded"):
        read_loads(path)


def safetensors(path, tensors):
    header, body = {}, b""
    for name, array in tensors.items():
        data = array.astype("<i4").tobytes()
        header[name] = {
            "dtype": "I32",
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def test_trtllm_statistics_sum_ranks_and_keep_layer_indices(tmp_path):
    (tmp_path / "meta_info.json").write_text('{"num_experts": 4, "num_experts_per_token": 2}')
    for rank in range(2):
        tensors = {f"{step}_{layer}": COUNTS[layer - 3] for step in (100, 101) for layer in (3, 4)}
        safetensors(tmp_path / f"rank{rank}.safetensors", tensors)
    loads = read_loads(tmp_path)
    assert loads.layer_ids == (3, 4)
    assert loads.num_layers == 5
    np.testing.assert_array_equal(loads.total, COUNTS[:2] * 4)
    (tmp_path / "rank1.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(InstanceError):
        read_loads(tmp_path)


def test_a_damaged_header_is_told_once(tmp_path, recwarn):
    r"""numpy reads it as Python's literals: ``\d`` is no escape, of which Python would warn on its own."""
    path = tmp_path / "loads.npy"
    np.save(path, np.ones((2, 4)))
    path.write_bytes(path.read_bytes().replace(b"'<f8'", b"'\\d8'"))
    with pytest.raises(InstanceError) as refused:
        read_loads(path)
    assert str(path) in str(refused.value)
    assert not recwarn.list


@pytest.mark.parametrize("name", ["physical_to_logical_map", "physical_to_logical", "phy2log"])
def test_a_placement_is_not_taken_for_counts(tmp_path, name):
    for path in (
        write(tmp_path / "a.json", {name: [[0, 1, 1]]}),
        write(tmp_path / "a.npz", {name: np.array([[0, 1, 1]])}),
    ):
        with pytest.raises(InstanceError, match=f"{name} is a placement"):
            read_loads(path)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({}, "hold no tensor"),
        ({"foo": COUNTS[0]}, "'foo' is not named <iteration>_<layer>"),
    ],
)
def test_tensors_that_are_no_statistics_are_named(tmp_path, tensors, said):
    safetensors(tmp_path / "rank0.safetensors", tensors)
    with pytest.raises(InstanceError, match=said):
        read_loads(tmp_path)
