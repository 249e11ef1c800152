"""What is read is bounded first: bytes, depth, elements, aliases, what an archive unpacks to; and read as written."""

from __future__ import annotations

import io
import json
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from run_cli import refused

from costmodel.experts.coactivation_files import read_coactivation
from costmodel.experts.expert_load import ExpertLoads, read_loads
from costmodel.measured.rows import read_measured
from costmodel.question.scenario import load_scenario
from rackfit.exporters.launch.hosts import read_host_names
from rackfit.importers.command_lines import read_processes
from topology.catalogue import MAX_YAML_BYTES, read_data, resolve
from topology.errors import InstanceError
from topology.names import brief, shown, shown_lines
from topology.quantity import parse_quantity
from topology.reading import (
    MAX_DEPTH,
    MAX_JSON_ELEMENTS,
    MAX_YAML_ELEMENTS,
    parse_json,
    parse_yaml,
    read_text,
)

BOMB = "".join(
    [
        "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n",
        *(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)),
    ]
)
MERGES = "a0: &a0 {k: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{','.join([f'*a{i - 1}'] * 10)}], k{i}: 1}}\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, r"its aliases stand for [0-9,]+ values"),
        (MERGES, r"its aliases stand for [0-9,]+ values"),
        ("a: &a [*a]", "x:1:4: holds itself"),
        ("a: &a\n  b: {c: *a}", "holds itself"),
        ("[" * (MAX_DEPTH + 1), "x:1:65: nested deeper than 64 levels"),
        ("[" * 100_000, "nested deeper"),
        ("- " * 100_000, "nested deeper"),
        (f"[{'1,' * MAX_YAML_ELEMENTS}1]", r"more than 250,000 values"),
        ("a: " + "1:" * 100_000 + "1", "x:1:4: a number of too many digits"),
        ("a: " + "1" * 5000, "a number of too many digits"),
        ("a: 1\nb: 2\na: 3\n", "x:3:1: the key a is given twice"),
        ("x: {b: 2, 'b': 3}", "the key b is given twice"),
        ("a: 2000-13-01", "not YAML: month must be in 1..12"),
        ("a: b: c", "not YAML"),
        ("a: !!python/object/apply:os.system [true]", "not YAML"),
        ("--- 1\n--- 2\n", "not YAML"),
        ("? [a]\n: 1", "not YAML"),
        ("a: \x1b", "not YAML"),
        ("a: \ud800", "not YAML"),
    ],
    ids=range(19),
)
def test_yaml_is_bounded(text: str, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        parse_yaml(text, "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("[" + "[]," * MAX_JSON_ELEMENTS, r"6,000,001 elements; at most 3,000,000 are read"),
        ('{"a": 1, "a": 2}', "the key a is given twice"),
        ('{"a": [{"b": 1, "c": 0, "b": 2}]}', "the key b is given twice"),
        ('{"a": NaN}', "NaN is not a number of JSON"),
        ('{"a": -Infinity}', "-Infinity is not a number of JSON"),
        ("1" * 5000, "a number has more than 4,300 digits"),
        ('{"a": \n 1,}', r"x:2:[34]: not JSON"),
    ],
    ids=range(8),
)
def test_json_is_bounded(text: str, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        parse_json(text, "x")


def test_shared_values_are_read() -> None:
    text = "a: &a {b: [1, 2]}\nc: *a\nd: {<<: *a, e: 1}\nf: 2001-01-01\ng: 1:30\n"
    found = parse_yaml(text, "x")
    assert found["d"] == {"b": [1, 2], "e": 1}
    assert (found["c"], found["g"]) == ({"b": [1, 2]}, 90)
    assert parse_yaml("", "x") is None


SCENARIO = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"}


@pytest.mark.parametrize("key", ["limits", "slo", "failed", "rate", "nobody", "name", "prices"])
def test_a_bomb_under_any_key_is_one_short_message(key: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(yaml.safe_dump(SCENARIO) + BOMB.replace("a11:", f"{key}:"))
    assert path.stat().st_size < 1000
    with pytest.raises(InstanceError) as caught:
        load_scenario(str(path))
    assert len(str(caught.value)) < 2000
    # one that is just small enough is refused for what it says, in a few words
    small = "".join(f"  {line}\n" for line in BOMB.splitlines()[:4])
    path.write_text(yaml.safe_dump(SCENARIO) + f"{key}:\n{small}")
    with pytest.raises(InstanceError) as caught:
        load_scenario(str(path))
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("ending", [".yaml", ".json"])
def test_a_byte_order_mark_is_no_part_of_the_text(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"question{ending}"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(SCENARIO).encode())
    assert load_scenario(str(path)).model == SCENARIO["model"]
    path.write_bytes(json.dumps(SCENARIO).encode("utf-16"))
    with pytest.raises(InstanceError, match="not UTF-8 text"):
        load_scenario(str(path))


def test_a_file_of_utf16_is_named(tmp_path: Path) -> None:
    """PowerShell writes it where output goes to a file."""
    (tmp_path / "a.json").write_text("{}", encoding="utf-16")
    with pytest.raises(
        InstanceError, match="it is UTF-16, as PowerShell writes by itself; save it as UTF-8"
    ):
        read_text(tmp_path / "a.json")


def test_a_key_given_twice_is_refused_in_every_data_file(tmp_path: Path) -> None:
    for name, text in (
        ("s.yaml", f"{yaml.safe_dump(SCENARIO)}rate: 1\nrate: 2\n"),
        ("s.json", f'{json.dumps(SCENARIO)[:-1]}, "rate": 1, "rate": 2}}'),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(InstanceError, match="the key rate is given twice"):
            load_scenario(str(tmp_path / name))


def test_files_of_no_end_and_odd_names(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    with large.open("wb") as file:
        file.truncate(MAX_YAML_BYTES + 1)
    for read in (read_data, read_processes, read_host_names):
        with pytest.raises(InstanceError, match=r"bytes; at most [0-9,]+ are read|not UTF-8"):
            read(large if read is not read_host_names else _long(tmp_path))
    with pytest.raises(InstanceError, match="not an ordinary file"):
        read_data(Path("/dev/zero"))
    with pytest.raises(InstanceError, match="not an ordinary file"):
        resolve("/dev/stdin", "scenarios")
    for name in ("x" * 300, "x" * 300 + ".yaml", "\0", "é" * 200, "a/" * 2000, "/" * 5000):
        with pytest.raises(InstanceError):
            resolve(name, "models")
        with pytest.raises(InstanceError):
            load_scenario(name)


def _long(folder: Path) -> Path:
    path = folder / "hosts"
    with path.open("wb") as file:
        file.truncate(2**26)
    return path


def _npz(path: Path, shape: tuple[int, ...], dtype: str = "<i8", lie: bool = False) -> None:
    """An archive of zeros of a shape; ``lie``: the header says so, and no data follows."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    size = 0 if lie else int(np.prod(shape)) * np.dtype(dtype).itemsize
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w") as file,
    ):
        file.write(head.getvalue())
        for start in range(0, size, 2**20):
            file.write(bytes(min(2**20, size - start)))


def _pt(path: Path, size: tuple[int, ...], stride: tuple[int, ...], times: int = 1) -> None:
    """A dump of tensors of this shape, all over one storage of 1,000 numbers, in pickle's plain opcodes."""

    def numbers(values: tuple[int, ...]) -> str:
        return "(" + "".join(f"I{value}\n" for value in values) + "t"

    storage = "(S'storage'\nctorch\nLongStorage\nS'0'\nS'cpu'\nI1000\ntQ"
    tensor = (
        f"ctorch._utils\n_rebuild_tensor_v2\n({storage}I0\n{numbers(size)}{numbers(stride)}I0\ntR"
    )
    records = "(l" + f"(dS'topk_ids_of_layer'\n{tensor}sa" * times
    dump = f"(dS'logical_count'\n{tensor}sS'records'\n{records}s."
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", dump)
        archive.writestr("x/data/0", bytes(8000))


LOADS = ExpertLoads(np.ones((1, 2, 8)), (0, 1), 2, ("a",), "x")


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("a.npz", lambda p: _npz(p, (1000, 12_500)), r"unpacks to 100,\d+,\d+ bytes"),
        (
            "a.npz",
            lambda p: _npz(p, (10**6, 10**6), lie=True),
            "unpacks to 8,000,000,000,000 bytes",
        ),
        ("a.npz", lambda p: _npz(p, (4, 10**6), "<U1000", lie=True), "unpacks to"),
        ("a.npz", lambda p: _npz(p, (4, 4), "|O", lie=True), "pickled objects"),
        ("a.pt", lambda p: _pt(p, (35_000, 35_000), (0, 0)), "larger than its storage"),
        ("a.pt", lambda p: _pt(p, (10, 10, 10), (100, 10, 1), times=20_000), "unpacks to"),
        (
            "a.json",
            lambda p: p.write_text("[" + "1," * MAX_JSON_ELEMENTS + "1]"),
            "elements; at most",
        ),
    ],
    ids=range(7),
)
def test_arrays_unpack_to_no_more_than_a_file_of_their_size_may(
    name: str, make: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    make(tmp_path / name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (read_loads, lambda path: read_coactivation(path, LOADS)):
        with pytest.raises(InstanceError, match=message):
            read(tmp_path / name)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200_000  # KiB


def test_a_csv_of_counts_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1," * MAX_JSON_ELEMENTS + "\n")
    with pytest.raises(InstanceError, match="cells; at most"):
        read_loads(tmp_path / "a.csv")
    (tmp_path / "a.csv.gz").write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\0" + b"\xff" * 20)
    with pytest.raises(InstanceError):
        read_measured(tmp_path / "a.csv.gz")


def test_messages_are_short_printable_and_right(tmp_path: Path) -> None:
    assert brief([[[list(range(9))] * 9] * 9]) == "[[[...], [...], [...], ...]]"
    assert len(brief({"k" * 500: "v" * 500})) <= 145
    assert shown("a\x1b\ud800" + "b" * 50, 10) == "a\\x1b\\ud800bbbbbbb... (53 characters)"
    assert shown_lines("a\n\x07b") == "a\n\\x07b"
    for size in ("1e308 B/s", "1e-300 B/s"):
        with pytest.raises(ValueError, match=r"expected at most 1e\+24 B/s"):
            parse_quantity(size, "B/s")
    with pytest.raises(ValueError, match=r"got '1 parsec'$"):
        parse_quantity("1 parsec", "s")
    with pytest.raises(ValueError, match=r"got \[\[1, 1, 1, \.\.\.\]"):
        parse_quantity([[1] * 9] * 9, "B")
    wrong = {**SCENARIO, **{f"key{index}": index for index in range(5000)}}
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(wrong))
    said = refused("and 4,980 more problems", "solve", tmp_path / "wrong.yaml")
    assert len(said) < 10_000
