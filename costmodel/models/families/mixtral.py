"""Mixtral: every layer GQA and a mixture; ``intermediate_size`` is the expert width."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, mixture
from costmodel.models.parts.windows import uniform_window
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """Gated experts, a plain softmax router, no shared expert."""
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim()
    experts = Experts.read(b, width_keys=("intermediate_size",))
    window = uniform_window(b)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(b, f"{name}.self_attn", heads, kv_heads, dim, window=window)
        return layer(b, attention, mixture(b, f"{name}.block_sparse_moe", experts))

    return decoder(b, at)


FAMILY = Family("mixtral", ("mixtral",), ("MixtralForCausalLM",), read)
