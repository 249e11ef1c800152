"""Qwen2 and Qwen2.5 (bias on q, k, v) and Qwen3 (norms on q and k), dense."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.parts.windows import upper_windows
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """GQA and a gated FFN; the window, where switched on, holds from ``max_window_layers`` up."""
    c, count = b.config, b.num_layers
    third = "3" in str(c.data.get("model_type") or c.data.get("architectures"))
    heads, kv_heads, width = b.heads, b.kv_heads(), b.ffn_width
    dim = b.head_dim(128 if third else None)
    bias = not third
    if third:
        bias = c.flag("attention_bias", default=False)
    windows = upper_windows(b, count)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias and third,
            vectors=2 * dim if third else 0, window=windows[index],
        )  # fmt: skip
        return layer(b, attention, dense_ffn(b, f"{name}.mlp", width))

    return decoder(b, at)


FAMILY = Family(
    "qwen",
    ("qwen2", "qwen3", "qwen3_vl_text", "qwen3_vl", "qwen2_5_vl_text", "qwen2_5_vl", "qwen2_vl",
     "qwen2_5_omni_text", "qwen2_5_omni_thinker", "qwen2_5_omni"),
    (
        "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration", "Qwen2VLForConditionalGeneration",
        "Qwen2_5OmniThinkerForConditionalGeneration", "Qwen2_5OmniForConditionalGeneration",
    ),
    read,
)  # fmt: skip
