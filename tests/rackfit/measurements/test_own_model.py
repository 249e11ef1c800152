"""Runs of a model that no catalogue has, named by its own config.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from results import saved

from costmodel.measured.predict import predict_under
from costmodel.measured.rows import MeasuredRow
from costmodel.measured.runs import runs_of
from costmodel.question.profile import load_profile
from rackfit.measurements.rows import Told, read_runs
from topology.catalogue import data_dir

RESULT = {
    "date": "20261102-101500", "endpoint_type": "openai", "backend": "openai", "model_id": "ours/fp8-of-tuesday", "tokenizer_id": "t",
    "num_prompts": 320, "request_rate": "inf", "max_concurrency": 32, "duration": 21.0, "completed": 320, "failed": 0,
    "total_input_tokens": 320000, "total_output_tokens": 64000, "request_throughput": 15.2, "mean_ttft_ms": 120.0,
    "mean_tpot_ms": 19.1,
}  # fmt: skip


def served(folder: Path, layers: int) -> Path:
    """A folder with Llama-3.1-8B's config.json of so many layers; its name says a precision that the file does not."""
    config = json.loads((data_dir("models") / "llama-3.1-8b.json").read_text(encoding="utf-8"))
    own = folder / "fp8-runs"
    own.mkdir(exist_ok=True)
    text = json.dumps(config | {"num_hidden_layers": layers})
    (own / "config.json").write_text(text, encoding="utf-8")
    return own


def rows_of(tmp_path: Path, model: str, **said: str) -> list[MeasuredRow]:
    """A run of a model on one H100 under vLLM."""
    result = saved(tmp_path, RESULT | said)
    launch = tmp_path / "launch.sh"
    launch.write_text("vllm serve x --tensor-parallel-size 1\n", encoding="utf-8")
    rows, skipped = read_runs([result], Told(launch, "h100", "vllm", model or None))
    assert not skipped
    return rows


def tpot_s(tmp_path: Path, model: str, **said: str) -> float:
    """Predicted seconds per token of that run."""
    runs, refused = runs_of(rows_of(tmp_path, model, **said))
    assert not refused
    return float(predict_under(runs, load_profile("calibrated")).tpot_s[0])


def test_a_config_is_read_as_the_catalogue_is(tmp_path: Path) -> None:
    own = served(tmp_path, 32)
    expected = tpot_s(tmp_path, "llama-3.1-8b")
    assert tpot_s(tmp_path, str(own)) == pytest.approx(expected, rel=1e-12)
    assert tpot_s(tmp_path, str(own / "config.json")) == pytest.approx(expected, rel=1e-12)
    assert tpot_s(tmp_path, "", model_id=str(own)) == pytest.approx(expected, rel=1e-12)


def test_its_layers_are_those_of_the_file(tmp_path: Path) -> None:
    whole = tpot_s(tmp_path, "llama-3.1-8b")
    half = tpot_s(tmp_path, str(served(tmp_path, 16)))
    assert 0.4 * whole < half < 0.65 * whole


def test_a_folder_without_one_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    _, (refused,) = runs_of(rows_of(tmp_path, str(tmp_path / "empty")))
    assert "is not in the catalogue, nor a config.json or the folder of one" in refused.reason
