"""``rackfit place --layer-slots``: one budget of slots, shared among the layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from costmodel.experts.dispatch import check_placement, chip_loads, imbalance
from costmodel.experts.expert_load import skewed_load
from rackfit.cli.app import exit_code
from rackfit.cli.commands.place import register
from rackfit.exporters.placements import sglang, trtllm, vllm
from rackfit.exporters.placements.table import UnlikeTable
from tests.rackfit.exporters.loaders import check_vllm_ascend
from topology.errors import InstanceError, RackfitError

LOADS = np.concatenate([np.ones((2, 32)), skewed_load(2, 32, seed=0) * 1000])


@pytest.fixture
def app() -> Typer:
    app = Typer(pretty_exceptions_enable=False)
    register(app)
    app.command("other")(lambda: None)
    return app


@pytest.fixture
def counts(tmp_path: Path) -> str:
    np.save(tmp_path / "counts.npy", LOADS)
    return str(tmp_path / "counts.npy")


def run(app: Typer, *arguments: object) -> Result:
    return CliRunner().invoke(app, ["place", *map(str, arguments)])


def document(app: Typer, *arguments: object) -> dict[str, Any]:
    result = run(app, *arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("sharing", ["rows", "any"])
def test_document_agrees_with_the_evaluator(app: Typer, counts: str, sharing: str) -> None:
    found = document(app, counts, "--gpus", 8, "--slots", 36, "--fast", "--layer-slots", sharing)
    ratios = []
    for row, slots, load in zip(
        found["physical_to_logical"], found["slots_per_gpu"], LOADS, strict=True
    ):
        table = check_placement([row], 32, slots)
        ratios.append(float(imbalance(chip_loads(table, load[None], slots))[0]))
        assert sharing == "any" or len(set(slots)) == 1
    np.testing.assert_allclose(found["imbalance"]["per_layer"], ratios)
    shared = found["shared"]
    assert shared["layer_slots"] == [len(row) for row in found["physical_to_logical"]]
    assert shared["slots"] == sum(shared["layer_slots"]) <= shared["budget"] == 4 * 36
    assert shared["slots_on_fullest_gpu"] == np.sum(found["slots_per_gpu"], axis=0).max()
    assert shared["bound"] <= np.mean(ratios)
    alike = document(app, counts, "--gpus", 8, "--slots", 36, "--fast")
    assert shared["uniform"] == {
        "imbalance": alike["imbalance"]["mean"],
        "slots": 4 * 36,
        "slots_on_fullest_gpu": 4 * max(alike["slots_per_gpu"]),
    }
    # even layers need no spare slot, the others get them
    assert shared["layer_slots"][:2] == [32, 32]
    assert max(shared["layer_slots"]) > 32
    assert shared["slots_on_fullest_gpu"] < shared["uniform"]["slots_on_fullest_gpu"]


def test_sharing_beats_equal_slots_on_several_workloads(app: Typer, tmp_path: Path) -> None:
    windows = np.stack([LOADS, LOADS * np.linspace(0.8, 1.2, 32)])
    np.save(tmp_path / "windows.npy", windows)
    path = tmp_path / "windows.npy"
    found = document(app, path, "--gpus", 8, "--slots", 34, "--layer-slots", "any", "--fast")
    assert found["imbalance"]["mean"] <= found["shared"]["uniform"]["imbalance"] * (1 + 1e-3)
    assert len(found["windows"]) == 2


def test_vllm_ascend_takes_rows(app: Typer, counts: str) -> None:
    options = ("--gpus", 8, "--slots", 36, "--fast", "--layer-slots", "rows", "--format", "vllm")
    result = run(app, counts, *options)
    assert result.exit_code == 0, result.output
    assert check_vllm_ascend(result.stdout, num_layers=4, num_experts=32, chips=8) == []
    rooms = {
        len(layer["device_list"][0]["device_expert"])
        for layer in json.loads(result.stdout)["layer_list"]
    }
    assert len(rooms) > 1
    assert "without dynamic_eplb" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--layer-slots", "rows", "--format", "sglang"),
            "rows: --format sglang holds same; rows needs --format json, --format vllm",
        ),
        (
            ("--layer-slots", "any", "--format", "trtllm"),
            "any: --format trtllm holds same; any needs --format json",
        ),
        (("--layer-slots", "any", "--format", "vllm"), "any: --format vllm holds same, rows"),
        (("--layer-slots", "any", "--max-moves", 3), "leave out --max-moves"),
        (
            ("--layer-slots", "any", "--groups", 4, "--gpus-per-node", 4),
            "need equally many slots per GPU; give rows",
        ),
    ],
)
def test_refusals_name_what_is_accepted(
    app: Typer, counts: str, options: tuple[object, ...], message: str
) -> None:
    result = run(app, counts, "--gpus", 8, "--slots", 36, *options)
    assert isinstance(result.exception, RackfitError)
    assert exit_code(result.exception) == 2
    assert message in str(result.exception)


def test_too_few_slots_say_how_many_are_needed(app: Typer, counts: str) -> None:
    result = run(app, counts, "--gpus", 5, "--slots", 33, "--layer-slots", "rows")
    assert isinstance(result.exception, RackfitError)
    assert "33 slots to a layer on average; need 35 or more for 32 experts on 5 GPUs" in str(
        result.exception
    )


def test_a_running_placement_is_not_shared_anew(app: Typer, counts: str, tmp_path: Path) -> None:
    found = document(app, counts, "--gpus", 8, "--slots", 36, "--fast", "--layer-slots", "rows")
    (tmp_path / "now.json").write_text(json.dumps(found))
    options = ("--current", tmp_path / "now.json", "--max-moves", 3)
    result = run(app, counts, "--gpus", 8, "--slots", 36, *options)
    assert isinstance(result.exception, RackfitError)
    assert "expected a placement of 4 layers" in str(result.exception)


def test_formats_refuse_tables_that_they_cannot_hold() -> None:
    rows = (tuple(range(4)), (*range(4), 0, 1))
    table = UnlikeTable(rows, 4, ((2, 2), (3, 3)), (0, 1), 2)
    for exporter in (sglang, trtllm):
        with pytest.raises(InstanceError, match=r"4 to 6 slots by layer \(layer 0: 4\), which"):
            exporter.render(table)
    assert check_vllm_ascend(vllm.render(table), num_layers=2, num_experts=4, chips=2) == []
    uneven = UnlikeTable(((0, 1, 2, 3), (0, 1, 2, 3, 0)), 4, ((2, 2), (3, 2)), (0, 1), 2)
    with pytest.raises(InstanceError, match="layer 1: 2 to 3 slots per GPU, which vLLM-Ascend"):
        vllm.render(uneven)
    with pytest.raises(InstanceError, match="twice on chip 0"):
        UnlikeTable(((0, 0, 1, 2, 3),), 4, ((3, 2),), (0,), 1)
