"""Phi-3.5-MoE: layer norms with bias, biases in attention and head, sixteen gated experts."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, mixture
from costmodel.models.parts.windows import uniform_window
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """The declared window equals the context in the release, which means none."""
    c = b.config
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim()
    experts = Experts.read(b, width_keys=("intermediate_size",))
    bias, window = c.flag("attention_bias", default=False), uniform_window(b)
    head_bias = c.flag("lm_head_bias", default=False)
    c.ignore("input_jitter_noise")

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias, window=window
        )
        moe = mixture(b, f"{name}.block_sparse_moe", experts)
        return layer(b, attention, moe, norms=4 * b.hidden)

    return decoder(b, at, head_bias=head_bias, final_norm=2 * b.hidden)


FAMILY = Family("phimoe", ("phimoe",), ("PhiMoEForCausalLM", "PhimoeForCausalLM"), read)
