"""Configs that differ from a class's defaults: other widths and counts, or without optional keys."""

from __future__ import annotations

import random
from typing import Any

#: Keys that a config file may leave out, because the class knows what then holds.
OPTIONAL = (
    "head_dim", "num_key_value_heads", "tie_word_embeddings", "attention_bias", "mlp_bias",
    "hidden_act", "hidden_activation", "layer_types", "sliding_window", "use_qk_norm", "qk_layernorm",
    "use_bias", "bias", "rope_parameters", "sliding_window_pattern", "no_rope_layers", "mlp_layer_types",
    "mlp_only_layers", "decoder_sparse_step", "conv_bias", "n_inner", "ffn_dim_multiplier",
    "mamba_conv_bias", "mamba_proj_bias", "use_conv_bias", "layers_block_type", "max_position_embeddings",
    "query_pre_attn_scalar", "attn_output_gate", "time_step_rank", "n_shared_experts",
    "attention_head_dim",
)  # fmt: skip
#: Keys that are scaled in the mutated config, by what.
_SCALED = {
    "vocab_size": 1.5, "intermediate_size": 1.25, "ffn_dim": 1.25, "n_inner": 1.25,
    "moe_intermediate_size": 1.5, "shared_expert_intermediate_size": 1.5,
    "shared_intermediate_size": 1.5, "block_ff_dim": 1.25, "ffn_hidden_size": 1.25,
}  # fmt: skip
_HALVED = (
    "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_hidden_layers",
    "n_layer", "n_layers", "num_layers", "num_blocks",
)  # fmt: skip
_DOUBLED = ("hidden_size", "n_embd", "d_model", "num_attention_heads", "n_head", "n_heads",
            "num_key_value_heads", "embedding_dim", "attention_hidden_size", "dim_ff")  # fmt: skip

#: Keys that are halved in the config without optional keys.
_NARROWED = ("hidden_size", "n_embd", "d_model", "embedding_dim", "attention_hidden_size")


def mutations(
    data: dict[str, Any], needed: set[str], rng: random.Random
) -> dict[str, list[dict[str, Any]]]:
    """Mutated configs by name; of each the boldest first, as a class may refuse some combinations.

    ``needed``: keys without which the class cannot be built.
    """
    sizes = scaled(data, _SCALED | dict.fromkeys(_DOUBLED, 2.0))
    flipped = {
        key: not value
        for key, value in data.items()
        if isinstance(value, bool) and (key == "tie_word_embeddings" or "bias" in key)
    }
    flipped = {
        key: value
        for key, value in flipped.items()
        if key == "tie_word_embeddings" or rng.random() < 0.5
    }
    widened = [
        shallower({**sizes, **flipped}),
        shallower({**scaled(data, _SCALED), **flipped}),
        {**scaled(data, {"vocab_size": 1.5}), **flipped},
        scaled(data, {"vocab_size": 1.5}),
    ]
    narrower = scaled(data, dict.fromkeys(_NARROWED, 0.5))
    bare = [
        {key: value for key, value in given.items() if key not in dropped or key in needed}
        for given in (narrower, data)
        for dropped in (OPTIONAL, ("head_dim", "tie_word_embeddings", "attention_bias"))
    ]
    return {"widened": widened, "bare": bare}


def scaled(data: dict[str, Any], factors: dict[str, float]) -> dict[str, Any]:
    """The config with some of its integers multiplied; multiples of 64 stay so."""
    out = dict(data)
    for key, factor in factors.items():
        old = out.get(key)
        if isinstance(old, int) and not isinstance(old, bool) and old > 1:
            new = int(old * factor)
            out[key] = new // 64 * 64 if old % 64 == 0 and new > 64 else new
    return {key: value for key, value in out.items() if key in data}


def shallower(data: dict[str, Any]) -> dict[str, Any]:
    """Half the layers and half the experts; lists with an entry per layer are cut."""
    out = dict(data)
    names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    layers = next((data[key] for key in names if isinstance(data.get(key), int)), 0)
    for key in _HALVED:
        if isinstance(out.get(key), int) and out[key] > 3:
            out[key] = out[key] // 2
    for key, value in out.items():
        if isinstance(value, list) and len(value) == layers > 3:
            out[key] = value[: layers // 2]
    if isinstance(out.get("num_experts_per_tok"), int):
        experts = [out[key] for key in _HALVED[:4] if isinstance(out.get(key), int)]
        out["num_experts_per_tok"] = min([out["num_experts_per_tok"], *experts])
    return out
