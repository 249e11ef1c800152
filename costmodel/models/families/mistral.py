"""Mistral: Llama's shape with an optional window over all layers."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.parts.windows import uniform_window
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """GQA without biases and a gated FFN."""
    heads, kv_heads, dim, width = b.heads, b.kv_heads(), b.head_dim(), b.ffn_width
    window = uniform_window(b)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(b, f"{name}.self_attn", heads, kv_heads, dim, window=window)
        return layer(b, attention, dense_ffn(b, f"{name}.mlp", width))

    return decoder(b, at)


FAMILY = Family(
    "mistral",
    ("mistral", "ministral3"),
    ("MistralForCausalLM", "Mistral3ForConditionalGeneration"),
    read,
)
