"""``rackfit model`` as a user sees it: output, JSON document, messages and exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rackfit.cli.app import main
from topology.catalogue import catalogue_names

#: Keys that the outer contract promises.
PROMISED = {
    "total_params", "active_params", "active_params_no_input_embedding", "weight_bytes",
    "kv_bytes_per_token", "kv_index_bytes_per_token", "kv_window_bytes", "state_bytes_per_sequence",
    "layers", "moe_layers", "routed_experts", "experts_per_token", "shared_experts", "attention",
    "mtp_params", "notes",
}  # fmt: skip


def _run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["rackfit", "model", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


@pytest.mark.parametrize("name", catalogue_names("models", (".json",))[::6])
def test_json_is_one_document(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = _run(monkeypatch, capsys, name, "--json")
    document: dict[str, Any] = json.loads(out)
    assert (code, err) == (0, "")
    assert set(document) >= PROMISED
    assert sum(part["params"] for part in document["parts"]) == document["total_params"]
    assert sum(part["bytes"] for part in document["parts"]) == pytest.approx(
        document["weight_bytes"]
    )
    assert document["readings"]


def test_table_shows_what_a_card_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = _run(monkeypatch, capsys, "deepseek-v3")
    assert code == 0
    for text in (
        "671.026 B", "36.626 B", "35.699 B", "673.15 GB", "61 (3 without, 58 with experts)",
        "256, 8, 1 (4 of 8 groups)", "70,272 B", "mla x61", "routed experts", "128k", "1M",
        "n_routed_experts", "config",
    ):  # fmt: skip
        assert text in out


def test_precision_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("deepseek-v3", "--json", "--weight-dtype", "fp4", "--kv-dtype", "fp8")
    _, out, _ = _run(monkeypatch, capsys, *words)
    document = json.loads(out)
    assert document["kv_bytes_per_token"] * 2 == 70272
    assert document["weight_bytes"] < 0.6 * 673e9


def test_every_problem_is_one_line_and_exit_code_is_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "hidden_size": -1, "vocab_size": "many"}))
    code, out, err = _run(monkeypatch, capsys, str(path))
    assert (code, out) == (2, "")
    assert "hidden_size: must be from 1" in err
    assert "vocab_size: expected an integer" in err
    assert "num_hidden_layers: is missing" in err
    assert "Traceback" not in err
    assert all(line.startswith("rackfit: ") for line in err.splitlines())


@pytest.mark.parametrize("words", [("no-such-model",), ("qwen3-8b", "--weight-dtype", "fp7")])
def test_bad_input(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = _run(monkeypatch, capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("rackfit: ")
