"""Every catalogue model against an independent count (``ground_truth.csv``).

``counts`` is what the published total of a row covers: the same five sums are computed for every
model and the row names one. Two rows count an image tower that their file does not describe; there
the text model is compared with the weights column, which is bf16 and text only.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from costmodel.models import load_model
from costmodel.models.summary import Summary, summarise
from topology.catalogue import catalogue_names

ROWS = list(csv.DictReader((Path(__file__).parent / "ground_truth.csv").read_text().splitlines()))
NOT_IN_FILE = "text+image not in the file"
TOTAL, BYTES, BOUNDED = 5e-4, 5e-3, 1e-2


def _active(summary: Summary, what: str) -> float:
    return {
        "everything": summary.active_params,
        "no input embedding": summary.active_params_no_input_embedding,
        "no embedding": summary.active_params_no_embedding,
    }[what]


def test_every_config_is_read() -> None:
    names = catalogue_names("models", (".json",))
    assert len(names) >= 66
    assert {row["model"] for row in ROWS} <= set(names)
    for name in names:
        assert summarise(load_model(name)).total_params > 1e9


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model"])
def test_model_equals_the_independent_count(row: dict[str, str]) -> None:
    summary = summarise(load_model(row["model"]))
    weights = float(row["weights_gb"]) * 1e9
    if row["counts"] == NOT_IN_FILE:
        assert summary.total_params == pytest.approx(weights / 2, rel=TOTAL)
    else:
        counted = float(row["counted_total_b"]) * 1e9
        assert summary.totals[row["counts"]] == pytest.approx(counted, rel=TOTAL)
    active = float(row["active_b"]) * 1e9
    assert _active(summary, row["active_counts"]) == pytest.approx(active, rel=TOTAL)
    assert summary.kv_bytes_per_token == int(row["kv_bytes_per_token"])
    assert summary.kv_index_bytes_per_token == int(row["index_bytes_per_token"])
    window, state = float(row["window_mib"]) * 2**20, float(row["state_mib"]) * 2**20
    assert summary.kv_window_bytes == pytest.approx(window, rel=BOUNDED)
    assert summary.state_bytes_per_sequence == pytest.approx(state, rel=BOUNDED)
    assert summary.weight_bytes == pytest.approx(weights, rel=BYTES)
    experts = (summary.routed_experts, summary.experts_per_token, summary.shared_experts)
    assert experts == (int(row["experts"]), int(row["top_k"]), int(row["shared"]))
    assert (summary.layers, summary.moe_layers) == (int(row["layers"]), int(row["moe_layers"]))
    kinds = dict(item.split("=") for item in row["attention"].split(";"))
    assert summary.attention == {kind: int(num) for kind, num in kinds.items()}


#: Parameter counts that model hubs show, to the parameter.
EXACT = {
    ("kimi-k2", "text"): 1_026_408_232_448,
    ("kimi-k2.5", "text+image"): 1_026_879_376_368,
    ("qwen3-next-80b-a3b", "text+mtp"): 81_324_862_720,
    ("gemma-3-27b", "text+image"): 27_432_406_640,
    ("kimi-linear-48b-a3b", "text"): 49_122_681_728,
}


@pytest.mark.parametrize("case", EXACT, ids=lambda case: case[0])
def test_hub_counts_to_the_parameter(case: tuple[str, str]) -> None:
    name, what = case
    assert summarise(load_model(name)).totals[what] == EXACT[case]


#: Sum of the checkpoint's file sizes, and MTP modules that come with copies of embedding and head.
FILES = {"deepseek-v3": 688_586_727_753, "kimi-k2": 1_029_190_981_272}


@pytest.mark.parametrize("name", FILES)
def test_file_bytes_are_reproduced(name: str) -> None:
    assert summarise(load_model(name)).file_bytes == pytest.approx(FILES[name], rel=1e-3)
