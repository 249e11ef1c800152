"""PaLM: parallel attention and FFN, multi-query attention, gated FFN, tied embedding."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """One norm without bias before both branches. Source: PaLM paper, section 2."""
    c = b.config
    heads, kv_heads, dim, width = b.heads, b.kv_heads(), b.head_dim(), b.ffn_width
    bias = c.flag("use_bias", default=False)
    norms = b.hidden if c.flag("parallel_layers", default=True) else 2 * b.hidden

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias
        )
        ffn = dense_ffn(b, f"{name}.mlp", width, bias=bias)
        return layer(b, attention, ffn, norms=norms)

    return decoder(b, at, tied_default=True)


FAMILY = Family("palm", ("palm",), ("PaLM",), read)
