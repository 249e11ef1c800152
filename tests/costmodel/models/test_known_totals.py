"""Architectures outside the catalogue, against parameter counts that model hubs or cards show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costmodel.models.load import load_model, read_model
from costmodel.models.spec import Attention
from costmodel.models.summary import Summary, summarise

KNOWN = json.loads((Path(__file__).parent / "known_totals.json").read_text())
#: Configs of other architectures; ``total_b`` and ``active_b`` are published billions of parameters.
OTHER = json.loads((Path(__file__).parent / "other_configs.json").read_text())
PUBLISHED = [name for name, entry in OTHER.items() if "total_b" in entry]


def _read(config: dict[str, Any]) -> Summary:
    return summarise(read_model({"torch_dtype": "bfloat16", **config}, "model", "config.json"))


@pytest.mark.parametrize("name", KNOWN)
def test_hub_count(name: str) -> None:
    # Some hubs count a few buffers (router bias of dense layers, rotary tables): one in a million.
    assert _read(KNOWN[name]["config"]).total_params == pytest.approx(
        KNOWN[name]["total"], rel=1e-6
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_figures(name: str) -> None:
    summary = _read(OTHER[name]["config"])
    assert summary.total_params == pytest.approx(OTHER[name]["total_b"] * 1e9, rel=0.01)
    assert summary.active_params == pytest.approx(OTHER[name]["active_b"] * 1e9, rel=0.05)


def test_zero_compute_experts_lower_the_expectation() -> None:
    summary = _read(OTHER["longcat-flash"]["config"])
    assert summary.experts_per_token == 12 * 512 / 768
    assert summary.routed_experts == 512
    assert summary.attention == {"mla": 56}


def test_values_may_be_narrower_than_keys() -> None:
    summary = _read(OTHER["mimo-v2-flash"]["config"])
    assert summary.kv_bytes_per_token == 9 * 4 * (192 + 128) * 2
    assert summary.kv_window_bytes == 39 * 128 * 8 * (192 + 128) * 2


def test_layers_that_share_a_cache_store_nothing() -> None:
    config = OTHER["hunyuan-large"]["config"]
    shared = _read(config)
    alone = _read({**config, "use_cla": False})
    assert shared.kv_bytes_per_token * 2 == alone.kv_bytes_per_token


def test_blocks_without_attention() -> None:
    """Three blocks: attention and FFN, FFN alone, one matrix for attention and a narrow FFN."""
    summary = _read(OTHER["nemotron-nas"]["config"])
    h, wide, narrow = 8192, 14336, 2816  # 2 * mult * h / 3, rounded up to a multiple of 256
    assert summary.attention == {"gqa": 1}
    assert summary.kv_bytes_per_token == 2 * 8 * 128 * 2
    ffns = 3 * h * (2 * wide + narrow)
    attentions = 2 * h * h + 2 * h * 1024 + h * h
    norms = (2 + 1 + 2 + 1) * h
    assert summary.totals["text-embeddings"] == ffns + attentions + norms


def test_deepseek_v4_pro_cache_is_the_published_one() -> None:
    summary = _read(OTHER["deepseek-v4-pro"]["config"])
    assert summary.kv_bytes_per_token + summary.kv_index_bytes_per_token == 9848
    assert summary.total_params == pytest.approx(1.6e12, rel=0.02)


def test_kimi_k3_reproduces_its_published_active_parameters_and_state() -> None:
    summary = _read(OTHER["kimi-k3"]["config"])
    assert summary.attention == {"mla": 24, "linear": 69}
    assert summary.active_params_no_input_embedding == pytest.approx(104.2e9, rel=1e-3)
    assert summary.state_bytes_per_sequence == pytest.approx(428.6 * 2**20, rel=1e-3)


def test_step_3_is_as_large_as_its_report_says() -> None:
    """321 B with the image tower, 38 B active; one key and one value head of 256 in each layer."""
    summary = _read(OTHER["step3"]["config"])
    assert summary.totals["text+image"] == pytest.approx(321e9, rel=5e-3)
    assert summary.active_params_no_input_embedding == pytest.approx(38e9, rel=5e-3)
    assert summary.kv_bytes_per_token == 61 * 2 * 256 * 2
    assert summary.attention == {"mfa": 61}


def test_step_3_reads_queries_through_one_shared_projection() -> None:
    spec = read_model({"torch_dtype": "bfloat16", **OTHER["step3"]["config"]}, "step3", "step3")
    attention = spec.layers[0].sublayers[0]
    assert isinstance(attention, Attention)
    down, up = 7168 * 2048, 2048 * 64 * 256
    keys, out = 2 * 7168 * 256, 64 * 256 * 7168
    assert sum(part.params for part in attention.weights) == down + up + keys + out + 2048


def _module(h: int, attention: int, width: int) -> int:
    """A draft module: a projection of two vectors, attention, a gated FFN and five norms."""
    return 2 * h * h + attention + 3 * h * width + 5 * h


def test_draft_modules_are_counted_as_their_families_build_them() -> None:
    longcat = _read({**OTHER["longcat-flash"]["config"], "num_nextn_predict_layers": 1})
    down = 6144 * (1536 + 512 + 64) + 1536 + 512
    up = 1536 * 64 * 192 + 512 * 64 * 256
    assert longcat.mtp_params == _module(6144, down + up + 64 * 128 * 6144, 12288)

    mimo = _read({**OTHER["mimo-v2-flash"]["config"], "num_nextn_predict_layers": 3})
    query, key, value = 64 * 192, 8 * 192, 8 * 128
    own = 4096 * (query + key + value + 64 * 128)
    sinks = 64 * bool(OTHER["mimo-v2-flash"]["config"].get("add_swa_attention_sink_bias"))
    assert mimo.mtp_params == 3 * _module(4096, own + sinks, 16384)

    spec = load_model("step-3.5-flash")
    assert spec.mtp is not None
    windows = {part.window for la in spec.mtp.layers for part in la.sublayers
               if isinstance(part, Attention)}  # fmt: skip
    own = 4096 * (2 * 96 * 128 + 2 * 8 * 128 + 96) + 2 * 128
    assert summarise(spec).mtp_params == 3 * _module(4096, own, 11264)
    assert windows == {512}
