"""RecurrentGemma (Griffin): two recurrent blocks to one attention block with a window."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS, decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.parts.states.recurrent import gated_lru
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, Layer, LinearState, ModelSpec


def read(b: Builder) -> ModelSpec:
    """``block_types`` repeats over the layers; the FFN is half of ``intermediate_size`` wide."""
    c, count = b.config, b.num_layers
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim()
    bias = c.flag("attention_bias", default=False)
    width = c.size("lru_width", default=b.hidden, because="the hidden size")
    taps = c.size("conv1d_width", default=4, because="class default", high=64)
    window = c.size("attention_window_size", default=2048, high=MAX_POSITIONS)
    inner = b.ffn_width // 2
    kinds = c.data.get("block_types")
    length = len(kinds) if isinstance(kinds, list) and 0 < len(kinds) <= count else 0
    period = c.strings("block_types", ("recurrent", "attention"), length) if length else None
    if period is None:
        c.log.note("assumed: block_types not given: recurrent, recurrent, attention in turns")
        period = ["recurrent", "recurrent", "attention"]
    if width % heads:
        c.problem("lru_width", f"{heads} heads do not divide {width}")
    c.ignore(
        "block_types", "logits_soft_cap", "w_init_variance_scale", "final_w_init_variance_scale"
    )
    c.ignore("embeddings_scale_by_sqrt_dim", "_block_types")

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        mixer: Attention | LinearState
        if period[index % len(period)] == "attention":
            mixer = grouped_query(
                b, f"{name}.temporal_block", heads, kv_heads, dim, qkv_bias=bias, o_bias=True,
                window=window,
            )  # fmt: skip
        else:
            mixer = gated_lru(b, f"{name}.temporal_block", width=width, heads=heads, taps=taps)
        return layer(b, mixer, dense_ffn(b, f"{name}.mlp_block", inner, bias=True))

    return decoder(b, at, tied_default=True)


FAMILY = Family("recurrent_gemma", ("recurrent_gemma",), ("RecurrentGemmaForCausalLM",), read)
