"""Architectures outside the catalogue, against parameter counts that model hubs or cards show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costmodel.models.load import read_model
from costmodel.models.summary import Summary, summarise

KNOWN = json.loads((Path(__file__).parent / "known_totals.json").read_text())
HYBRID = ["sliding_attention"] * 5 + ["full_attention"]


def _read(config: dict[str, Any]) -> Summary:
    return summarise(read_model({"torch_dtype": "bfloat16", **config}, "model", "config.json"))


@pytest.mark.parametrize("name", KNOWN)
def test_hub_count(name: str) -> None:
    # Some hubs count a few buffers (router bias of dense layers, rotary tables): one in a million.
    assert _read(KNOWN[name]["config"]).total_params == pytest.approx(
        KNOWN[name]["total"], rel=1e-6
    )


LATENT = {
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}  # fmt: skip
#: Config and published billions of parameters: total and active.
PUBLISHED: dict[str, tuple[dict[str, Any], float, float]] = {
    "longcat-flash": (
        {
            "model_type": "longcat_flash", "attention_bias": False, "hidden_size": 6144,
            "num_layers": 28, "num_attention_heads": 64, "ffn_hidden_size": 12288,
            "expert_ffn_hidden_size": 2048, "n_routed_experts": 512, "zero_expert_num": 256,
            "zero_expert_type": "identity", "moe_topk": 12, "vocab_size": 131072, **LATENT,
        },
        560, 27,
    ),
    "mimo-v2-flash": (
        {
            "model_type": "mimo_v2_flash", "vocab_size": 152576, "hidden_size": 4096,
            "intermediate_size": 16384, "num_hidden_layers": 48, "num_attention_heads": 64,
            "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128,
            "swa_num_attention_heads": 64, "swa_num_key_value_heads": 8, "swa_head_dim": 192,
            "swa_v_head_dim": 128, "sliding_window": 128, "n_routed_experts": 256,
            "hybrid_layer_pattern": [0 if i == 0 or i % 6 == 5 else 1 for i in range(48)],
            "moe_layer_freq": [0] + [1] * 47, "moe_intermediate_size": 2048,
            "num_experts_per_tok": 8, "add_swa_attention_sink_bias": True,
        },
        309, 15,
    ),
    "gemma-4-31b": (
        {
            "model_type": "gemma4_text", "vocab_size": 262144, "hidden_size": 5376,
            "intermediate_size": 21504, "num_hidden_layers": 60, "num_attention_heads": 32,
            "num_key_value_heads": 16, "head_dim": 256, "global_head_dim": 512,
            "num_global_key_value_heads": 4, "attention_k_eq_v": True, "sliding_window": 1024,
            "layer_types": HYBRID * 10,
        },
        30.7, 30.7,
    ),
    "gemma-4-26b-a4b": (
        {
            "model_type": "gemma4_text", "vocab_size": 262144, "hidden_size": 2816,
            "intermediate_size": 2112, "num_hidden_layers": 30, "num_attention_heads": 16,
            "num_key_value_heads": 8, "head_dim": 256, "global_head_dim": 512,
            "num_global_key_value_heads": 2, "attention_k_eq_v": True, "sliding_window": 1024,
            "layer_types": HYBRID * 5, "enable_moe_block": True, "num_experts": 128,
            "top_k_experts": 8, "moe_intermediate_size": 704,
        },
        25.2, 3.8,
    ),
    "dots.llm1": (
        {
            "model_type": "dots1", "hidden_size": 4096, "intermediate_size": 10944,
            "moe_intermediate_size": 1408, "num_hidden_layers": 62, "num_attention_heads": 32,
            "num_key_value_heads": 32, "n_routed_experts": 128, "n_shared_experts": 2,
            "num_experts_per_tok": 6, "first_k_dense_replace": 1, "vocab_size": 152064,
        },
        142.8, 14,
    ),
    "hunyuan-large": (
        {
            "model_type": "hunyuan", "hidden_size": 6400, "num_hidden_layers": 64,
            "num_attention_heads": 80, "num_key_value_heads": 8, "intermediate_size": 18304,
            "num_experts": 16, "moe_topk": 1, "num_shared_expert": 1, "use_mixed_mlp_moe": True,
            "use_cla": True, "cla_share_factor": 2, "use_qk_norm": True, "vocab_size": 129024,
            "tie_word_embeddings": True,
        },
        389, 52,
    ),
    "granite-4-h-small": (
        {
            "model_type": "granitemoehybrid", "hidden_size": 4096, "intermediate_size": 768,
            "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
            "num_local_experts": 72, "num_experts_per_tok": 10, "shared_intermediate_size": 1536,
            "vocab_size": 100352, "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1,
            "mamba_d_state": 128, "mamba_d_conv": 4, "tie_word_embeddings": True,
            "layer_types": (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4,
        },
        32.2, 9,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_figures(name: str) -> None:
    config, total, active = PUBLISHED[name]
    summary = _read(config)
    assert summary.total_params == pytest.approx(total * 1e9, rel=0.01)
    assert summary.active_params == pytest.approx(active * 1e9, rel=0.05)


def test_zero_compute_experts_lower_the_expectation() -> None:
    summary = _read(PUBLISHED["longcat-flash"][0])
    assert summary.experts_per_token == 12 * 512 / 768
    assert summary.routed_experts == 512
    assert summary.attention == {"mla": 56}


def test_values_may_be_narrower_than_keys() -> None:
    summary = _read(PUBLISHED["mimo-v2-flash"][0])
    assert summary.kv_bytes_per_token == 9 * 4 * (192 + 128) * 2
    assert summary.kv_window_bytes == 39 * 128 * 8 * (192 + 128) * 2


def test_layers_that_share_a_cache_store_nothing() -> None:
    config = PUBLISHED["hunyuan-large"][0]
    shared = _read(config)
    alone = _read({**config, "use_cla": False})
    assert shared.kv_bytes_per_token * 2 == alone.kv_bytes_per_token


def test_blocks_without_attention() -> None:
    attention = {"n_heads_in_group": 8, "no_op": False, "replace_with_linear": False}
    nothing = {"n_heads_in_group": None, "no_op": True, "replace_with_linear": False}
    ffn = {"ffn_mult": 2.625, "no_op": False, "replace_with_linear": False}
    summary = _read(
        {
            "model_type": "nemotron-nas", "architectures": ["DeciLMForCausalLM"],
            "hidden_size": 8192, "num_hidden_layers": 2, "num_attention_heads": 64,
            "num_key_value_heads": None, "vocab_size": 128256, "tie_word_embeddings": False,
            "block_configs": [{"attention": attention, "ffn": ffn}, {"attention": nothing, "ffn": ffn}],
        }
    )  # fmt: skip
    assert summary.attention == {"gqa": 1}
    assert summary.kv_bytes_per_token == 2 * 8 * 128 * 2
    width = 14336  # 2 * 2.625 * 8192 / 3, rounded up to a multiple of 256
    blocks = 2 * 3 * width * 8192 + 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192
    assert summary.totals["text-embeddings"] == blocks + 8192


def test_deepseek_v4_pro_cache_is_the_published_one() -> None:
    summary = _read(
        {
            "model_type": "deepseek_v4", "compress_ratios": [128, 128, *[4, 128] * 29, 4, 0],
            "expert_dtype": "fp4", "hc_mult": 4, "head_dim": 512, "hidden_size": 7168,
            "index_head_dim": 128, "index_n_heads": 64, "index_topk": 1024,
            "moe_intermediate_size": 3072, "n_routed_experts": 384, "n_shared_experts": 1,
            "num_attention_heads": 128, "num_experts_per_tok": 6, "num_hash_layers": 3,
            "num_hidden_layers": 61, "num_key_value_heads": 1, "num_nextn_predict_layers": 1,
            "o_groups": 16, "o_lora_rank": 1024, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
            "sliding_window": 128, "vocab_size": 129280, "tie_word_embeddings": False,
        }
    )  # fmt: skip
    assert summary.kv_bytes_per_token + summary.kv_index_bytes_per_token == 9848
    assert summary.total_params == pytest.approx(1.6e12, rel=0.02)


def test_kimi_k3_reproduces_its_published_active_parameters_and_state() -> None:
    summary = _read(
        {
            "model_type": "kimi_linear", "vocab_size": 163840, "num_hidden_layers": 93,
            "hidden_size": 7168, "num_attention_heads": 96, "num_key_value_heads": 96,
            "intermediate_size": 33792, "first_k_dense_replace": 1, "num_experts": 896,
            "num_experts_per_token": 16, "num_shared_experts": 2, "moe_intermediate_size": 3072,
            "routed_expert_hidden_size": 3584, "latent_moe_use_norm": True, **LATENT,
            "mla_use_output_gate": True, "attn_res_block_size": 12, "tie_word_embeddings": False,
            "linear_attn_config": {
                "full_attn_layers": [*range(4, 94, 4), 93],
                "kda_layers": [index for index in range(1, 93) if index % 4],
                "head_dim": 128, "num_heads": 96, "short_conv_kernel_size": 4,
                "use_full_rank_gate": True,
            },
        }
    )  # fmt: skip
    assert summary.attention == {"mla": 24, "linear": 69}
    assert summary.active_params_no_input_embedding == pytest.approx(104.2e9, rel=1e-3)
    assert summary.state_bytes_per_sequence == pytest.approx(428.6 * 2**20, rel=1e-3)
