"""Nemotron-NAS (DeciLM): blocks found by search, each with its own attention and FFN or none."""

from __future__ import annotations

from typing import Any

from costmodel.models.config import Config
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS, decoder
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.read_log import shown
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec, Sublayer, Weights

#: FFN widths are rounded up to a multiple of this.
_MULTIPLE = 256


def read(b: Builder) -> ModelSpec:
    """``block_configs`` lists per block ``n_heads_in_group``, ``ffn_mult`` and what is left out."""
    c, count = b.config, b.num_layers
    heads, dim = b.heads, b.head_dim()
    c.ignore("num_key_value_heads", "intermediate_size")
    bias, mlp_bias = c.flag("attention_bias", default=False), c.flag("mlp_bias", default=False)
    blocks = c.data.get("block_configs")
    c.ignore("block_configs")
    if not isinstance(blocks, list) or len(blocks) != count:
        raise c.fail("block_configs", f"expected a list of {count} blocks, got {shown(blocks)}")
    made = [
        _block(b, block, index, heads, dim, bias, mlp_bias) for index, block in enumerate(blocks)
    ]
    return decoder(b, lambda index: made[index])


def _block(
    b: Builder, block: Any, index: int, heads: int, dim: int, bias: bool, mlp_bias: bool
) -> Layer:
    c, at = b.config, f"model.layers.{index}"
    place = f"block_configs[{index}]"
    if not isinstance(block, dict):
        raise c.fail(place, f"expected an object, got {shown(block)}")
    whole = Config(block, c.file, c.log, f"{c.path}{place}.")
    attention, ffn = whole.section("attention"), whole.section("ffn")
    if attention is None or ffn is None:
        raise c.fail(place, "needs attention and ffn")
    parts: list[Sublayer] = []
    extra: list[Weights] = []
    for section in (attention, ffn):
        section.ignore(*section.data)
    if attention.data.get("replace_with_linear"):
        extra.append(b.matrix("linear instead of attention", f"{at}.self_attn.linear_attn",
                              b.hidden, b.hidden, "width"))  # fmt: skip
    elif not attention.data.get("no_op"):
        group = attention.size("n_heads_in_group", high=heads)
        if heads % group:
            attention.problem("n_heads_in_group", f"{group} does not divide {heads} heads")
            group = heads
        window = None
        if attention.data.get("window_length") is not None:
            window = attention.size("window_length", high=MAX_POSITIONS)
        parts.append(
            grouped_query(
                b,
                f"{at}.self_attn",
                heads,
                heads // group,
                dim,
                qkv_bias=bias,
                o_bias=bias,
                window=window,
            )
        )
    if ffn.data.get("replace_with_linear"):
        extra.append(b.matrix("linear instead of FFN", f"{at}.mlp.linear_mlp", b.hidden, b.hidden,
                              "width"))  # fmt: skip
    elif not ffn.data.get("no_op"):
        parts.append(dense_ffn(b, f"{at}.mlp", _width(b, ffn), bias=mlp_bias))
    norms = b.vector("norms", b.hidden * (len(parts) + len(extra)))
    return Layer(tuple(parts), (*extra, norms))


def _width(b: Builder, ffn: Config) -> int:
    """FFN width = 2/3 of ``ffn_mult`` hidden sizes twice over, rounded up to a multiple of 256."""
    value = ffn.data.get("ffn_mult")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 64:
        ffn.problem("ffn_mult", f"expected a number between 0 and 64, got {shown(value)}")
        return _MULTIPLE
    return -(-int(2 * value * b.hidden / 3) // _MULTIPLE) * _MULTIPLE


FAMILY = Family("deci", ("nemotron-nas", "deci"), ("DeciLMForCausalLM",), read)
