"""LFM2 and LFM3: gated short convolutions in most layers, attention in the others."""

from __future__ import annotations

from math import ceil

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS, decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, mixture
from costmodel.models.parts.states.recurrent import short_convolution
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, DenseFFN, Layer, LinearState, ModelSpec, MoE


def read(b: Builder) -> ModelSpec:
    """``layer_types`` says what mixes tokens; LFM2-MoE has experts after its dense layers."""
    c, count = b.config, b.num_layers
    kind = str(c.data.get("model_type") or c.data.get("architectures")).lower()
    third, mixed = "lfm3" in kind, "moe" in kind
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim()
    kinds = _kinds(b, count, third=third)
    taps = c.size("conv_L_cache", default=3, because="class default", high=64)
    conv_bias = c.flag("conv_bias", default=False)
    window = c.size("sliding_window", high=MAX_POSITIONS) if "sliding_attention" in kinds else None
    gate, norms = 0, 2
    if third:
        gate = heads if c.flag("use_attention_gate", default=True) else 0
        norms = 4 if c.flag("use_sandwich_norm", default=True) else 2
        c.ignore("attention_bias")
    dense, experts = count, Experts(1, 1, 1)
    if mixed:
        dense = c.size("num_dense_layers", default=2, because="class default", low=0, high=count)
        experts = Experts.read(b)
        router_bias = c.flag("use_expert_bias", default=True)
    width = _ffn_width(b, adjust=not third and not mixed)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        mixer: Attention | LinearState
        if kinds[index] == "conv":
            mixer = short_convolution(b, f"{name}.conv", taps=taps, bias=conv_bias)
        else:
            mixer = grouped_query(
                b, f"{name}.self_attn", heads, kv_heads, dim, vectors=2 * dim, gate_rows=gate,
                window=window if kinds[index] == "sliding_attention" else None,
            )  # fmt: skip
        feed: DenseFFN | MoE
        if index < dense:
            feed = dense_ffn(b, f"{name}.feed_forward", width)
        else:
            feed = mixture(b, f"{name}.feed_forward", experts, router_bias=router_bias)
        return layer(b, mixer, feed, norms=norms * b.hidden)

    return decoder(b, at, tied_default=True)


def _kinds(b: Builder, count: int, *, third: bool) -> list[str]:
    c = b.config
    kinds = c.strings("layer_types", ("conv", "full_attention", "sliding_attention"), count)
    c.ignore("full_attn_idxs", "num_dense_layers")
    if kinds is not None:
        return kinds
    if third:
        c.log.note("assumed: layer_types not given: the rule of LFM3's class")
        return [
            "full_attention" if index % 4 == 2
            else "sliding_attention" if index % 4 == 0 and index else "conv"
            for index in range(count)
        ]  # fmt: skip
    listed = c.indices("full_attn_idxs", count)
    if listed is None:
        c.log.note("assumed: layer_types not given: attention in every layer (class default)")
        return ["full_attention"] * count
    return ["full_attention" if index in listed else "conv" for index in range(count)]


def _ffn_width(b: Builder, *, adjust: bool) -> int:
    """LFM2 takes two thirds of ``intermediate_size``, rounded up to a multiple, unless told not to."""
    c = b.config
    width = c.size("intermediate_size", "block_ff_dim")
    if adjust and c.flag("block_auto_adjust_ff_dim", default=True):
        width = int(2 * width / 3)
        width = int(width * c.number("block_ffn_dim_multiplier", default=1.0))
        multiple = c.size("block_multiple_of", default=256, because="class default")
        return ceil(width / multiple) * multiple
    c.ignore("block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of")
    return width


FAMILY = Family(
    "lfm2",
    ("lfm2", "lfm2_moe", "lfm3"),
    ("Lfm2ForCausalLM", "Lfm2MoeForCausalLM", "Lfm3ForCausalLM"),
    read,
)
