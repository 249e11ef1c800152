"""Cohere's Command models: parallel branches under one norm, tied embedding, windows in Command-A."""

from __future__ import annotations

from costmodel.models.config import MAX_LAYERS
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS, decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.parts.schedule import windowed_layers
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """Command-R attends fully; Command-A (``cohere2``) slides in three of four layers."""
    c, count = b.config, b.num_layers
    kind = str(c.data.get("model_type") or c.data.get("architectures")).lower()
    heads, kv_heads, dim, width = b.heads, b.kv_heads(), b.head_dim(), b.ffn_width
    bias = c.flag("attention_bias", default=False)
    norm = 0
    slides, window = [False] * count, None
    if "cohere2" in kind:
        window = c.size("sliding_window", default=4096, because="class default", high=MAX_POSITIONS)
        pattern = 4
        if not c.has("layer_types"):
            pattern = c.size("sliding_window_pattern", "_sliding_window_pattern", default=4,
                             because="class default", high=MAX_LAYERS)  # fmt: skip
        c.ignore("sliding_window_pattern", "_sliding_window_pattern", "use_parallel_block")
        c.ignore("order_of_interleaved_layers", "use_gated_activation", "use_embedding_sharing")
        slides = windowed_layers(b, count, pattern=pattern, because="class default")
    elif c.flag("use_qk_norm", default=False):
        norm = (heads + kv_heads) * dim

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias,
            vectors=norm, window=window if slides[index] else None,
        )  # fmt: skip
        return layer(b, attention, dense_ffn(b, f"{name}.mlp", width), norms=b.hidden)

    return decoder(b, at, tied_default=True)


FAMILY = Family("cohere", ("cohere", "cohere2"), ("CohereForCausalLM", "Cohere2ForCausalLM"), read)
