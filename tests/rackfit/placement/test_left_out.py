"""``rackfit place`` with several recordings, some of them kept from the search and judged on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from costmodel.experts.dispatch import chip_loads, imbalance
from costmodel.experts.expert_load import joined_loads, read_loads, skewed_load
from rackfit.cli.app import exit_code
from rackfit.cli.commands.place import register
from solver.experts.eplb import eplb

BASE = skewed_load(3, 32, seed=0) * 1000
NOISE = np.random.default_rng(1).lognormal(0, 0.4, (4, *BASE.shape))
WINDOWS = BASE * NOISE
NAMES = ("a", "b", "c", "d")


@pytest.fixture
def app() -> Typer:
    app = Typer(pretty_exceptions_enable=False)
    register(app)
    app.command("other")(lambda: None)
    return app


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{name}.npy" for name in NAMES]
    for path, window in zip(paths, WINDOWS, strict=True):
        np.save(path, window)
    return paths


def run(app: Typer, *arguments: object) -> Result:
    options = ("--gpus", 8, "--slots", 40, "--fast", "--workers", 1)
    return CliRunner().invoke(app, ["place", *map(str, (*arguments, *options))])


def document(app: Typer, *arguments: object) -> dict[str, Any]:
    result = run(app, *arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def ratio(table: Any, window: Any) -> float:
    return float(imbalance(chip_loads(np.array(table), window, 5)).mean())


def test_files_are_placed_for_as_the_windows_of_one(
    app: Typer, files: list[Path], tmp_path: Path
) -> None:
    np.savez(tmp_path / "all.npz", **dict(zip(NAMES, WINDOWS, strict=True)))
    several, one = document(app, *files), document(app, tmp_path / "all.npz")
    assert several["physical_to_logical"] == one["physical_to_logical"]
    assert list(several["windows"]) == list(NAMES)
    assert "left_out" not in several


def test_a_left_out_recording_is_judged_and_not_seen(app: Typer, files: list[Path]) -> None:
    found = document(app, *files, "--leave-out", "b", "--leave-out", "d")
    unseen = document(app, files[0], files[2])
    assert found["physical_to_logical"] == unseen["physical_to_logical"]
    assert found["imbalance"] == unseen["imbalance"]
    assert list(found["windows"]) == ["a", "c"]
    shares = WINDOWS / WINDOWS.sum(axis=2, keepdims=True)
    theirs = eplb(shares[[0, 2]].mean(axis=0), 40, 8)
    assert list(found["left_out"]) == ["b", "d"]
    for name, window, path in (("b", WINDOWS[1], files[1]), ("d", WINDOWS[3], files[3])):
        judged = found["left_out"][name]
        own = document(app, path)
        assert judged["imbalance"] == pytest.approx(ratio(found["physical_to_logical"], window))
        assert judged["eplb"] == pytest.approx(ratio(theirs, window))
        assert judged["made_for_it"] == pytest.approx(own["imbalance"]["mean"])
        assert judged["bound"] == pytest.approx(np.mean(own["bound"]))
        assert 0 < judged["bound"] <= judged["made_for_it"] < judged["imbalance"]


def test_uneven_slots_have_no_eplb(app: Typer, files: list[Path]) -> None:
    words = ("--leave-out", "a", "--gpus", 8, "--slots", 41, "--fast", "--workers", 1)
    result = CliRunner().invoke(app, ["place", *map(str, (*files, *words))])
    assert result.exit_code == 0, result.output
    judged = json.loads(result.stdout)["left_out"]["a"]
    assert judged["eplb"] is None
    assert judged["imbalance"] > judged["made_for_it"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--leave-out", "e"), "no recording is called 'e'; recorded: a, b, c, d"),
        ([word for name in NAMES for word in ("--leave-out", name)], "leaves no recording"),
        (("--leave-out", "a", "--layer-slots", "any"), "equally many slots in every layer"),
    ],
)
def test_what_cannot_be_left_out_is_refused(
    app: Typer, files: list[Path], more: Any, why: str
) -> None:
    refused = run(app, *files, *more)
    assert exit_code(refused.exception) == 2
    assert why in str(refused.exception)


def test_files_of_unlike_layers_are_refused(app: Typer, files: list[Path], tmp_path: Path) -> None:
    np.save(tmp_path / "short.npy", BASE[:2])
    refused = run(app, *files, tmp_path / "short.npy")
    assert exit_code(refused.exception) == 2
    assert "short.npy: 2 MoE layers of 32 experts" in str(refused.exception)
    assert "has 3 of 32" in str(refused.exception)


def test_recordings_of_one_name_are_told_apart(files: list[Path]) -> None:
    one = read_loads(files[0])
    assert joined_loads([one, one, one]).names == ("a", "a#2", "a#3")
