"""Llama 4: chunked attention in three of four layers, MoE with one shared expert."""

from __future__ import annotations

from costmodel.models.config import MAX_LAYERS
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, ffn_weights, mixture
from costmodel.models.parts.schedule import windowed_layers
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """Layers with rotary positions attend within chunks; each 4th has none and sees everything."""
    c = b.config
    heads, kv_heads, dim, count = b.heads, b.kv_heads(), b.head_dim(128), b.num_layers
    experts = Experts.read(b, width_keys=("intermediate_size",))
    dense_width = c.size("intermediate_size_mlp")
    step = c.size("interleave_moe_layer_step", default=1, because="every layer", high=MAX_LAYERS)
    bias = c.flag("attention_bias", default=False)
    c.flag("use_qk_norm", default=True, because="a norm without weights")
    sparse = c.indices("moe_layers", count)
    is_moe = [(index + 1) % step == 0 for index in range(count)]
    if sparse is not None:
        is_moe = [index in sparse for index in range(count)]
    chunk = c.size("attention_chunk_size", default=8192)
    chunked = _chunked_layers(b, count)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias,
            window=chunk if chunked[index] else None,
            kind="gqa-chunked" if chunked[index] else None,
        )  # fmt: skip
        ffn = f"{name}.feed_forward"
        if not is_moe[index]:
            return layer(b, attention, dense_ffn(b, ffn, dense_width))
        shared = ffn_weights(b, f"{ffn}.shared_expert", experts.width, prefix="shared expert's ")
        moe = mixture(b, ffn, experts, shared=shared, num_shared=1, router="router")
        return layer(b, attention, moe)

    return decoder(b, at)


def _chunked_layers(b: Builder, count: int) -> list[bool]:
    """``no_rope_layers`` is 1 where a layer has rotary positions; absent or empty: 3 of 4."""
    c = b.config
    if c.data.get("no_rope_layers"):
        chunked = [flag == 1 for flag in c.sizes("no_rope_layers", count, high=1) or []]
        types = c.strings("layer_types", ("full_attention", "chunked_attention"), count)
        if types is not None and [kind == "chunked_attention" for kind in types] != chunked:
            raise c.fail("layer_types", "contradicts no_rope_layers")
        return chunked
    c.ignore("no_rope_layers")
    step = c.size("no_rope_layer_interval", default=4, because="class default", high=MAX_LAYERS)
    return windowed_layers(
        b, count, pattern=step, because="class default", sliding="chunked_attention"
    )


FAMILY = Family(
    "llama4",
    ("llama4_text", "llama4"),
    ("Llama4ForConditionalGeneration", "Llama4ForCausalLM"),
    read,
)
