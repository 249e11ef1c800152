"""Gemma 2 and 3: windows in most layers, norms before and after each branch, tied embedding."""

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
    """Gemma 2 alternates; Gemma 3 has one full layer in six, and norms on q and k."""
    c, count = b.config, b.num_layers
    third = "gemma2" not in str(c.data.get("model_type")).lower()
    heads, kv_heads, dim, width = b.heads, b.kv_heads(), b.head_dim(256), b.ffn_width
    bias = c.flag("attention_bias", default=False)
    window = c.size("sliding_window", default=4096, because="class default", high=MAX_POSITIONS)
    pattern = 2
    if third and not c.has("layer_types"):
        pattern = c.size(
            "sliding_window_pattern", "_sliding_window_pattern", default=6,
            because="class default", high=MAX_LAYERS,
        )  # fmt: skip
    c.ignore("sliding_window_pattern", "_sliding_window_pattern", "use_bidirectional_attention")
    slides = windowed_layers(b, count, pattern=pattern, because=f"Gemma {3 if third else 2}")

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias,
            vectors=2 * dim if third else 0, window=window if slides[index] else None,
        )  # fmt: skip
        return layer(b, attention, dense_ffn(b, f"{name}.mlp", width), norms=4 * b.hidden)

    return decoder(b, at, tied_default=True)


FAMILY = Family(
    "gemma",
    ("gemma2", "gemma3_text", "gemma3"),
    ("Gemma2ForCausalLM", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
    read,
    {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4},
)
