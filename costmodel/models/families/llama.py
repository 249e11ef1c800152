"""Llama and the dense models that share its shape: Mistral, Qwen2, Qwen3 and others."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """GQA without q/k norms and a gated FFN, with biases where the config says so."""
    c = b.config
    heads, kv_heads, dim, width = b.heads, b.kv_heads(), b.head_dim(), b.ffn_width
    bias = c.flag("attention_bias", default=False)
    mlp_bias = c.flag("mlp_bias", default=False)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias
        )
        return layer(b, attention, dense_ffn(b, f"{name}.mlp", width, bias=mlp_bias))

    return decoder(b, at)


FAMILY = Family("llama", ("llama", "iquestcoder"), ("LlamaForCausalLM",), read)
