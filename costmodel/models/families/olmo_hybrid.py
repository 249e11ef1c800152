"""OLMo hybrid: gated delta layers and full attention, each norm after its branch or before it."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.parts.states.linear import DeltaHeads, gated_delta, state_element_bytes
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, Layer, LinearState, ModelSpec


def read(b: Builder) -> ModelSpec:
    """``layer_types``; attention has norms over all of q and k."""
    c, count = b.config, b.num_layers
    heads, kv_heads, dim, width = b.heads, b.kv_heads(), b.head_dim(), b.ffn_width
    bias = c.flag("attention_bias", default=False)
    key_dim = c.size("linear_key_head_dim", default=int(0.75 * b.hidden / heads), high=2**14,
                     because="three quarters of a head")  # fmt: skip
    delta = DeltaHeads(
        c.size("linear_num_key_heads", default=heads, because="as queries", high=2**12),
        c.size("linear_num_value_heads", default=heads, because="as queries", high=2**12),
        key_dim,
        c.size("linear_value_head_dim", default=2 * key_dim, because="twice the key", high=2**14),
        c.size("linear_conv_kernel_dim", default=4, because="class default", high=64),
    )
    kinds = c.strings("layer_types", ("linear_attention", "full_attention"), count)
    if kinds is None:
        c.log.note("assumed: layer_types not given: every fourth layer has full attention")
        kinds = [
            "full_attention" if index % 4 == 3 or index == count - 1 else "linear_attention"
            for index in range(count)
        ]
    element = state_element_bytes(c)
    c.ignore("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max",
             "linear_dt_init_floor", "linear_allow_neg_eigval", "linear_use_gate")  # fmt: skip

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        mixer: Attention | LinearState
        if kinds[index] == "full_attention":
            mixer = grouped_query(
                b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias,
                vectors=(heads + kv_heads) * dim,
            )  # fmt: skip
        else:
            mixer = gated_delta(b, f"{name}.linear_attn", delta, element)
        return layer(b, mixer, dense_ffn(b, f"{name}.mlp", width))

    return decoder(b, at)


FAMILY = Family("olmo_hybrid", ("olmo_hybrid",), ("OlmoHybridForCausalLM",), read)
