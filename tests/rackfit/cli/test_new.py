"""``rackfit new`` and ``rackfit catalogue exporters``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from costmodel.question.scenario import load_scenario
from rackfit.cli.app import main


def _run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["rackfit", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr()
    return int(stop.value.code or 0), said.out, said.err


def test_new_writes_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    code, _, err = _run(monkeypatch, capsys, "new", str(path), "--cluster", "hgx-h100@2")
    assert code == 0
    assert "rackfit solve" in err
    assert load_scenario(str(path)).cluster == "hgx-h100@2"
    before = path.read_text()
    code, _, err = _run(monkeypatch, capsys, "new", str(path))
    assert code == 2
    assert "exists already" in err
    assert path.read_text() == before


def test_new_refuses_unknown_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    code, _, err = _run(
        monkeypatch, capsys, "new", str(path), "--model", "nope", "--cluster", "neither"
    )
    assert code == 2
    assert "nope" in err
    assert "neither" in err
    assert not path.exists()


def test_exporters_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = _run(monkeypatch, capsys, "catalogue", "exporters", "--json")
    assert code == 0
    names = [row["name"] for row in json.loads(out)]
    assert names == sorted(names)
    assert {"json", "sglang", "trtllm", "vllm", "dynamo", "slurm"} <= set(names)
