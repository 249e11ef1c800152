"""ERNIE 4.5, dense and MoE: MoE layers from a start to an end index, at an interval."""

from __future__ import annotations

from costmodel.models.config import MAX_LAYERS
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, shared_mixture
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """The router has a selection bias; shared experts are as wide as routed ones."""
    c, count = b.config, b.num_layers
    heads, kv_heads, dim, width = b.heads, b.kv_heads(), b.head_dim(), b.ffn_width
    bias = c.flag("use_bias", default=False)
    is_moe = [False] * count
    num_shared, experts = 0, Experts(1, 1, 1)
    if "moe" in str(c.data.get("model_type") or c.data.get("architectures")).lower():
        experts = Experts.read(b)
        num_shared = c.size("moe_num_shared_experts", default=0, because="none", low=0, high=2**10)
        first = c.size("moe_layer_start_index", low=0, high=MAX_LAYERS)
        last = c.size("moe_layer_end_index", default=count - 1, because="the last layer", low=-1,
                      high=MAX_LAYERS)  # fmt: skip
        step = c.size("moe_layer_interval", default=1, because="every layer", high=MAX_LAYERS)
        last = count - 1 if last == -1 else last
        is_moe = [first <= i <= last and (i + 1) % step == 0 for i in range(count)]
    c.ignore("moe_capacity", "moe_gate", "moe_use_aux_free", "moe_norm_min")

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias
        )
        if not is_moe[index]:
            return layer(b, attention, dense_ffn(b, f"{name}.mlp", width, bias=bias))
        return layer(b, attention, shared_mixture(b, f"{name}.mlp", experts, num_shared, bias=bias))

    return decoder(b, at, tied_default=True)


FAMILY = Family(
    "ernie",
    ("ernie4_5_moe", "ernie4_5"),
    ("Ernie4_5_MoeForCausalLM", "Ernie4_5_ForCausalLM", "Ernie4_5ForCausalLM"),
    read,
)
