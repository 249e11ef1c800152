"""What recordings tell beside counts: layers without experts, experts per token; cells that are no numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from costmodel.experts.expert_load import joined_loads, read_loads
from rackfit.cli.app import build_app
from rackfit.placement.place import place
from solver.experts.request import PlaceOptions
from tests.costmodel.experts.torch_dumps import torch_file
from topology.errors import InstanceError

#: six layers, every other one with experts, as Llama 4 Maverick has them
COUNTS = np.arange(1, 6 * 8 + 1).reshape(6, 8) * np.array([[0], [1]] * 3)


def saved(folder: Path, counts: Any = COUNTS, name: str = "a.json", **more: Any) -> Path:
    (folder / name).write_text(json.dumps({"logical_count": np.asarray(counts).tolist(), **more}))
    return folder / name


def test_dense_rows_between_others_are_layers_without_experts(tmp_path: Path) -> None:
    loads = read_loads(saved(tmp_path))
    assert loads.layer_ids == (1, 3, 5)
    assert (loads.num_layers, loads.empty) == (6, (0, 2, 4))
    np.testing.assert_array_equal(loads.total, COUNTS[1::2])
    assert read_loads(saved(tmp_path), dense_layers=1).layer_ids == (1, 3, 5)


def test_leading_dense_rows_alone_are_as_ever(tmp_path: Path) -> None:
    loads = read_loads(saved(tmp_path, [[0, 0], [1, 2], [3, 4]]))
    assert (loads.layer_ids, loads.empty) == ((1, 2), ())


def test_a_layer_that_one_window_alone_misses_is_refused(tmp_path: Path) -> None:
    counts = np.ones((2, 3, 4))
    counts[1, 1] = 0
    with pytest.raises(
        InstanceError, match="1 rows are all zero, first layer 1 of window 'window 1'"
    ):
        read_loads(saved(tmp_path, counts))


def test_the_command_says_which_layers_it_left_out(tmp_path: Path) -> None:
    out = tmp_path / "placed.json"
    words = ["place", str(saved(tmp_path)), "--gpus", "4", "--slots", "12", "--format", "sglang", "--out", str(out)]  # fmt: skip
    said = CliRunner().invoke(build_app(), words)
    assert said.exit_code == 0, said.output
    assert "3 of 6 layers have no experts, as their rows are all zero: 0, 2, 4" in said.output
    rows = json.loads(out.read_text())["physical_to_logical_map"]
    assert len(rows) == 6
    assert rows[0] == rows[2] == [slot % 8 for slot in range(12)]


def test_recordings_of_unlike_layers_are_told_apart(tmp_path: Path) -> None:
    shifted = np.roll(COUNTS, 2, axis=0)
    shifted[[1, 2]] = shifted[[2, 1]]
    both = [read_loads(saved(tmp_path)), read_loads(saved(tmp_path, shifted, "b.json"))]
    with pytest.raises(InstanceError, match=r"numbered from 2, 5 after 3; .* from 1, 3 after 1"):
        joined_loads(both)


@pytest.mark.parametrize(
    "more",
    [
        {"num_experts_per_tok": 1},
        {"top_k": 1},
        {"metadata": {"num_experts_per_token": 1}},
        {"config": {"moe_router_topk": 1}},
    ],
)
def test_experts_per_token_are_read_where_a_recording_tells_them(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    loads = read_loads(saved(tmp_path, **more))
    assert loads.top_k == 1
    options = PlaceOptions(4, 12, gpus_per_node=2, effort="fast")
    assert place(loads, options).options.top_k == 1


def test_those_of_other_formats_are_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "a.npz", logical_count=COUNTS, top_k=np.array(2))
    assert read_loads(tmp_path / "a.npz").top_k == 2
    dump = torch_file(tmp_path / "a.pt", monkeypatch, {"logical_count": COUNTS, "topk": 4})
    assert read_loads(dump).top_k == 4


def test_another_number_of_experts_per_token_is_refused(tmp_path: Path) -> None:
    loads = read_loads(saved(tmp_path, top_k=1))
    with pytest.raises(InstanceError, match=r"--top-k: 2 experts per token, .*a.json says 1"):
        place(loads, PlaceOptions(4, 12, top_k=2))
    other = read_loads(saved(tmp_path, name="b.json", top_k=2))
    with pytest.raises(InstanceError, match=r"experts per token differ: .*b.json says 2"):
        joined_loads([loads, other])


@pytest.mark.parametrize("value", [0, True, "1", 1.5])
def test_what_is_no_number_of_experts_is_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(InstanceError, match="top_k: expected a whole number from 1, got "):
        read_loads(saved(tmp_path, top_k=value))


def test_a_recording_of_tokens_is_told_apart_from_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = torch_file(tmp_path / "a.pt", monkeypatch, {"records": []})
    with pytest.raises(InstanceError, match="record with the mode stat"):
        read_loads(dump)


@pytest.mark.parametrize("cell", ["1_0", "\N{FULLWIDTH DIGIT ONE}\N{FULLWIDTH DIGIT TWO}"])
def test_a_cell_that_python_alone_reads_is_no_number(tmp_path: Path, cell: str) -> None:
    (tmp_path / "a.csv").write_text(f"3,4\n{cell},5\n")
    with pytest.raises(InstanceError, match=f"row 2: '{cell}' is not a number"):
        read_loads(tmp_path / "a.csv")


def test_names_of_layer_and_expert_are_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("0_0,0_1\n3,4\n2,5\n")
    np.testing.assert_array_equal(read_loads(tmp_path / "a.csv").total, [[3, 4], [2, 5]])
