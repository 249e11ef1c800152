"""Lists of quantised modules: any spelling of a module is found, and nothing listed is lost in silence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from costmodel.models.files import MAX_CONFIG_BYTES, parse_object
from costmodel.models.load import read_model
from costmodel.models.spec import ModelSpec, MoE
from costmodel.models.summary import stored_formats, summarise
from topology.catalogue import data_dir


def _config(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((data_dir("models") / f"{name}.json").read_text())
    data.pop("quantization_config", None)
    return data


def _mixed(layers: dict[str, str], exclude: tuple[str, ...] = ()) -> dict[str, Any]:
    listed = {name: {"quant_algo": algorithm} for name, algorithm in layers.items()}
    return {
        "producer": {"name": "modelopt"},
        "quantization": {
            "quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8",
            "quantized_layers": listed, "exclude_modules": list(exclude),
        },
    }  # fmt: skip


def _lightning(prefix: str) -> ModelSpec:
    """Nemotron's experts in NVFP4 and its Mamba projections in FP8, all listed one by one."""
    data = _config("nemotron-3-nano-30b-a3b")
    layers = {f"{prefix}lm_head" if prefix == "model." else "lm_head": "W4A16_NVFP4"}
    for index, letter in enumerate(data["hybrid_override_pattern"]):
        mixer = f"{prefix}layers.{index}.mixer"
        if letter == "M":
            layers |= {f"{mixer}.{name}": "FP8" for name in ("in_proj", "out_proj")}
        if letter == "E":
            for name in ("up_proj", "down_proj"):
                layers[f"{mixer}.shared_experts.{name}"] = "W4A16_NVFP4"
                for expert in range(data["n_routed_experts"]):
                    layers[f"{mixer}.experts.{expert}.{name}"] = "W4A16_NVFP4"
    return read_model(data, "lightning", "config.json", beside=_mixed(layers))


@pytest.mark.parametrize(
    "prefix", ["backbone.", "model.", "language_model.", "model.language_model.", ""]
)
def test_any_prefix_of_the_text_model_is_resolved(prefix: str) -> None:
    spec = _lightning(prefix)
    moe = next(p for layer in spec.layers for p in layer.sublayers if isinstance(p, MoE))
    assert moe.expert_dtype == "fp4"
    assert spec.head[0].dtype == "fp4"
    assert spec.warnings == ()
    # experts, shared experts and head at 4.5 bits, Mamba at 8, attention, router, table at 16
    assert summarise(spec).weight_bytes == pytest.approx(18.87e9, rel=5e-3)


def test_a_prefix_that_is_none_is_a_warning() -> None:
    spec = _lightning("foo.")
    assert any("names no matrix of this model" in warning for warning in spec.warnings)


def test_experts_listed_as_w1_w2_w3_are_found() -> None:
    data = _config("minimax-m3")
    layers = {}
    for index in range(3, data["num_hidden_layers"]):
        for expert in range(data["num_local_experts"]):
            for name in ("w1", "w2", "w3"):
                where = f"language_model.model.layers.{index}.block_sparse_moe.experts.{expert}"
                layers[f"{where}.{name}"] = "NVFP4"
    spec = read_model(data, "m3", "config.json", beside=_mixed(layers))
    assert "experts fp4" in stored_formats(spec)
    assert spec.warnings == ()
    # one of three is not listed: half of a gated pair
    for name in [name for name in layers if name.endswith("w3")]:
        del layers[name]
    spec = read_model(data, "m3", "config.json", beside=_mixed(layers))
    assert any("unevenly" in warning for warning in spec.warnings)


def test_an_expert_that_is_not_listed_is_a_warning() -> None:
    data = _config("qwen3-30b-a3b")
    layers = {
        f"model.layers.{index}.mlp.experts.{expert}.{name}": "NVFP4"
        for index in range(data["num_hidden_layers"])
        for expert in range(data["num_experts"])
        for name in ("gate_proj", "up_proj", "down_proj")
    }
    assert read_model(data, "q", "config.json", beside=_mixed(layers)).warnings == ()
    del layers["model.layers.7.mlp.experts.3.down_proj"]
    assert read_model(data, "q", "config.json", beside=_mixed(layers)).warnings


def test_a_conversion_leaves_fp8_blocks_as_they_were() -> None:
    data = json.loads((data_dir("models") / "deepseek-v4-flash.json").read_text())
    plain = read_model(data, "v4", "config.json")
    section = data["quantization_config"]
    section |= {
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {
            f"layers.{index}.ffn.experts": {"quant_algo": "NVFP4"}
            for index in range(data["num_hidden_layers"])
        },
        "ignore": ["*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"],
    }
    spec = read_model(data, "v4", "config.json")
    assert spec.warnings == ()
    before, after = summarise(plain), summarise(spec)
    experts = sum(
        part.num_experts * part.expert_params
        for layer in spec.layers for part in layer.sublayers if isinstance(part, MoE)
    )  # fmt: skip
    # from one scale byte per 32 to one per 16, and two numbers per matrix; nothing else changes
    assert after.weight_bytes - before.weight_bytes == pytest.approx(experts / 32, rel=2e-3)


def test_lists_of_quantised_modules_of_ten_megabytes_are_read() -> None:
    entries = [f"model.layers.{index}.mlp.experts.{index}.down_proj" for index in range(90_000)]
    content = json.dumps({"ignore": entries}).encode()
    assert 3.1e6 < len(content) < MAX_CONFIG_BYTES
    assert len(parse_object(content, "hf_quant_config.json")["ignore"]) == 90_000
