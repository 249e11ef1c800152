"""Hunyuan 3: GQA with q/k norms, one dense layer, routed and shared experts, one MTP layer."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, shared_mixture
from costmodel.models.parts.mtp import next_token_modules, num_modules
from costmodel.models.parts.schedule import sparse_layers
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """Sigmoid router with a selection bias."""
    c, count = b.config, b.num_layers
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim()
    norm = 2 * dim if c.flag("qk_norm", default=True) else 0
    experts, num_shared = Experts.read(b), c.size("num_shared_experts", low=0, high=2**10)
    width, sparse, modules = (
        b.ffn_width,
        sparse_layers(b, count, first_default=1 if b.config.class_defaults else None),
        num_modules(b),
    )

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(b, f"{name}.self_attn", heads, kv_heads, dim, vectors=norm)
        if index < count and not sparse[index]:
            return layer(b, attention, dense_ffn(b, f"{name}.mlp", width))
        return layer(b, attention, shared_mixture(b, f"{name}.mlp", experts, num_shared))

    return decoder(b, at, mtp=lambda: next_token_modules(b, modules, at, count))


FAMILY = Family("hy_v3", ("hy_v3",), ("HYV3ForCausalLM",), read)
