"""How bytes follow from the quantisation settings. Figures worked by hand from the formats."""

from __future__ import annotations

import json
from typing import Any

import pytest

from costmodel.models import load_model
from costmodel.models.load import read_model
from costmodel.models.parts.quantisation.formats import FP8_BLOCK, MXFP4, NVFP4, grouped_int
from costmodel.models.parts.quantisation.matching import PatternError, Patterns
from costmodel.models.spec import Attention, ModelSpec, MoE
from costmodel.models.summary import own_weights, summarise
from topology.catalogue import data_dir
from topology.errors import InstanceError


def _config(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((data_dir("models") / f"{name}.json").read_text())
    return data


def test_block_scales_are_rounded_up_per_dimension() -> None:
    # kv_a of MLA: 576 rows are 5 blocks of 128, 7168 columns are 56.
    assert FP8_BLOCK.num_bytes(576, 7168) == 576 * 7168 + 5 * 56 * 4


def test_four_bit_formats() -> None:
    assert MXFP4.num_bytes(64, 2880) == 64 * 2880 * 4.25 / 8
    assert NVFP4.num_bytes(64, 2048) == 64 * 2048 * 4.5 / 8 + 8
    assert grouped_int(4, 32, zero_points=False).num_bytes(64, 2048) == 64 * 2048 * 4.5 / 8


@pytest.mark.parametrize(
    ("entry", "covered", "not_covered"),
    [
        ("gate", "model.layers.3.mlp.gate", "model.layers.3.mlp.up_proj"),
        ("model.layers.1.mlp", "model.layers.1.mlp.up_proj", "model.layers.11.mlp.up_proj"),
        ("model.layers.*.self_attn", "model.layers.7.self_attn.q_proj", "model.layers.7.mlp.gate"),
        ("model.layers.5.self_attn*", "model.layers.5.self_attn.o_proj", "model.layers.55.mlp.gate"),
        ("re:.*shared_experts.*", "model.layers.3.mlp.shared_experts.up_proj", "model.layers.3.mlp"),
        (r"re:.*mlp\.(gate|up)_proj.*", "model.layers.3.mlp.up_proj", "model.layers.3.mlp.experts"),
        ("language_model.model.layers.2.self_attn.q_proj", "model.layers.2.self_attn.q_proj",
         "model.layers.2.self_attn.o_proj"),
        ("*.attn.*", "model.layers.2.self_attn.q_proj", "model.layers.2.mlp.up_proj"),
    ],
)  # fmt: skip
def test_patterns(entry: str, covered: str, not_covered: str) -> None:
    patterns = Patterns([entry])
    assert patterns.match(covered)
    assert not patterns.match(not_covered)


@pytest.mark.parametrize("entry", ["re:(a+)+$", "re:.*.*.*.*x", "re:(", "re:" + "a" * 500])
def test_patterns_that_could_hang_or_fail_are_refused(entry: str) -> None:
    with pytest.raises(PatternError):
        Patterns([entry])


def test_endless_lists_of_patterns_are_refused() -> None:
    with pytest.raises(PatternError, match="2000 patterns"):
        Patterns([f"model.layers.{index}.*" for index in range(2000)])


def test_modelopt_file_beside_the_config_decides() -> None:
    data = _config("deepseek-v3")
    excluded = [f"model.layers.{index}.self_attn*" for index in range(61)] + ["lm_head"]
    beside = {
        "producer": {"name": "modelopt", "version": "0.27.0"},
        "quantization": {
            "quant_algo": "NVFP4",
            "kv_cache_quant_algo": "FP8",
            "group_size": 16,
            "exclude_modules": excluded,
        },
    }
    native = summarise(read_model(data, "v3", "v3"))
    spec = read_model(data, "v3", "v3", beside=beside)
    summary = summarise(spec)
    assert spec.kv_dtype == "fp8"
    assert summary.total_params == native.total_params
    # FFN and experts at 4.5 bits, attention, router, embedding and head at 16: 396 GB published
    # for the V3-0324 conversion.
    assert summary.weight_bytes == pytest.approx(396e9, rel=5e-3)
    assert any("hf_quant_config.json decides" in note for note in spec.notes)


def test_mixed_precision_lists_modules() -> None:
    data = _config("deepseek-v4-flash")
    del data["quantization_config"]
    layers = {f"layers.{i}.ffn.experts": {"quant_algo": "NVFP4"} for i in range(43)}
    beside = {"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}}
    spec = read_model(data, "v4", "v4", beside=beside)
    expert = 3 * 4096 * 2048
    routed = 43 * 256 * (expert * 4.5 / 8 + 3 * 8)
    rest = summarise(spec).total_params - 43 * 256 * expert
    assert summarise(spec).weight_bytes == pytest.approx(routed + 2 * rest, rel=1e-3)


def test_groups_of_different_precision() -> None:
    data = _config("qwen3-30b-a3b")
    eight = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
    four = {
        "num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16,
        "symmetric": True,
    }  # fmt: skip
    data["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {"targets": ["re:.*self_attn.*"], "weights": eight},
            "group_1": {"targets": ["re:.*experts.*"], "weights": four},
        },
    }
    spec = read_model(data, "mixed", "mixed")
    attention, moe = spec.layers[0].sublayers
    assert isinstance(attention, Attention)
    assert isinstance(moe, MoE)
    dtypes = {w.name: w.dtype for w in attention.weights}
    assert dtypes["query"] == "fp8"
    assert moe.expert_dtype == "fp4"
    assert spec.head[0].dtype == "bf16"


_FP8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}


def _compressed(**more: Any) -> ModelSpec:
    groups = {"group_0": {"targets": ["Linear"], "weights": _FP8}}
    settings = {
        "quant_method": "compressed-tensors",
        "ignore": ["lm_head"],
        "config_groups": groups,
    }
    return read_model(_config("llama-3.1-8b") | {"quantization_config": settings | more}, "m", "m")


@pytest.mark.parametrize(
    "more",
    [
        {"sparsity_config": {"format": "sparse-24-bitmask", "sparsity_structure": "2:4"}},
        {"sparsity_config": {"format": "sparse-bitmask", "sparsity_structure": "2:4"}},
        {"format": "marlin-24"},
    ],
)
def test_sparse_matrices_are_counted_dense_with_a_warning(more: dict[str, Any]) -> None:
    plain, spec = _compressed(), _compressed(**more)
    (warning,) = spec.warnings
    assert "matrices are sparse" in warning
    assert "2:4" in warning
    assert summarise(spec) == summarise(plain)


@pytest.mark.parametrize("sparsity", [{}, None, {"format": "dense"}])
def test_dense_matrices_have_no_warning_of_sparsity(sparsity: dict[str, Any] | None) -> None:
    assert _compressed(sparsity_config=sparsity).warnings == ()


@pytest.mark.parametrize(
    ("settings", "dtype", "notes", "warnings"),
    [
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8", 0, 0),
        ({"kv_cache_quant_algo": "FP8"}, "fp8", 0, 0),
        ({"kv_cache_quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8}}, "fp8", 0, 0),
        ({"kv_cache_quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 8}}, "fp8", 0, 1),
        ({}, "bf16", 1, 0),
    ],
)
def test_notes_on_the_kv_cache_of_modelopt_do_not_contradict(
    settings: dict[str, Any], dtype: str, notes: int, warnings: int
) -> None:
    plain = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
    data = _config("qwen3-30b-a3b") | {"quantization_config": plain | settings}
    spec = read_model(data, "m", "m")
    assert spec.kv_dtype == dtype
    assert len([note for note in spec.notes if "assumed" in note and "kv_cache" in note]) == notes
    assert len([note for note in spec.warnings if "kv_cache" in note]) == warnings


@pytest.mark.parametrize(
    ("dtype", "bits"), [("bf16", 16), ("fp16", 16), ("fp8", 8), ("int8", 8), ("fp4", 4.5)]
)
def test_requested_precision_replaces_the_native_one(dtype: str, bits: float) -> None:
    summary = summarise(load_model("llama-3.1-70b", weight_dtype=dtype))
    kept = summary.embedding_params
    expected = (summary.total_params - kept) * bits / 8 + kept * 2
    assert summary.weight_bytes == pytest.approx(expected, rel=1e-3)
    assert summary.total_params == summarise(load_model("llama-3.1-70b")).total_params


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b", "gpt-oss-20b"])
def test_fp16_asked_for_is_bf16_of_another_name(name: str) -> None:
    """``fp16`` was in the schema of scenarios and refused by the reader; the rest of the model is of the same format."""
    half, wide = (load_model(name, weight_dtype=dtype) for dtype in ("fp16", "bf16"))
    assert (half.activation_dtype, half.native_dtype) == ("fp16", "fp16 (asked for)")
    parts = (part for layer in half.layers for part in layer.sublayers)
    assert {weight.dtype for part in parts for weight in own_weights(part)} == {"fp16"}
    assert summarise(half) == summarise(wide)


def test_requested_kv_dtype_halves_the_cache() -> None:
    whole, half = (summarise(load_model("gpt-oss-120b", kv_dtype=d)) for d in ("bf16", "fp8"))
    assert half.kv_bytes_per_token * 2 == whole.kv_bytes_per_token
    assert half.kv_window_bytes * 2 == whole.kv_window_bytes


@pytest.mark.parametrize("bad", ["fp7", "", "BF16"])
def test_unknown_dtypes_are_refused(bad: str) -> None:
    with pytest.raises(InstanceError, match="weight_dtype"):
        load_model("llama-3.1-8b", weight_dtype=bad)
    with pytest.raises(InstanceError, match="kv_dtype"):
        load_model("llama-3.1-8b", kv_dtype=bad)


@pytest.mark.parametrize(("bits", "held"), [(2, 4), (3, 4), (6, 8)])
def test_weights_of_odd_bits_are_said_to_be_held_in_more(bits: int, held: int) -> None:
    config = _config("llama-3.1-8b")
    config["quantization_config"] = {"quant_method": "gptq", "bits": bits, "group_size": 128}
    said = f"assumed: weights of {bits} bits are held and read as {held} bits each"
    assert said in read_model(config, "model", "model").notes
