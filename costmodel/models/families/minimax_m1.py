"""MiniMax-01 and M1: seven lightning-attention layers to one of softmax, every layer a mixture."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, ffn_weights, mixture
from costmodel.models.parts.states.linear import lightning, state_element_bytes
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, Layer, LinearState, ModelSpec


def read(b: Builder) -> ModelSpec:
    """``attn_type_list``: 0 lightning, 1 softmax. ``intermediate_size`` is the expert width."""
    c, count = b.config, b.num_layers
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim()
    experts = Experts.read(b, width_keys=("intermediate_size",))
    types = _softmax_layers(b, count)
    shared_width = c.size("shared_intermediate_size", default=0, because="no shared expert", low=0)
    c.ignore("shared_moe_mode", "postnorm", "sliding_window", *_SCALES)
    element = state_element_bytes(c)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention: Attention | LinearState
        if types[index]:
            attention = grouped_query(b, f"{name}.self_attn", heads, kv_heads, dim)
        else:
            attention = lightning(b, f"{name}.self_attn", heads, dim, element)
        shared = ffn_weights(b, f"{name}.shared_mlp", shared_width) if shared_width else ()
        moe = mixture(
            b, f"{name}.block_sparse_moe", experts, shared=shared, num_shared=int(bool(shared))
        )
        return layer(b, attention, moe)

    return decoder(b, at)


def _softmax_layers(b: Builder, count: int) -> list[bool]:
    c = b.config
    types = c.strings("layer_types", ("linear_attention", "full_attention"), count)
    if types is not None:
        c.ignore("attn_type_list")
        return [kind == "full_attention" for kind in types]
    numbers = c.sizes("attn_type_list", count, high=1)
    if numbers is None and c.data.get("model_type") == "minimax":
        c.log.note("assumed: layer_types not given: softmax in every second layer (class default)")
        return [index % 2 == 0 for index in range(count)]
    if numbers is None:
        raise c.fail("attn_type_list", "is missing: which layers are linear is not known")
    return [number == 1 for number in numbers]


#: Residual scales: numbers, not weights; two spellings.
_SCALES = tuple(
    name
    for kind, short in (
        ("full_attention", "full_attn"),
        ("linear_attention", "linear_attn"),
        ("mlp", "mlp"),
    )
    for end in ("alpha", "beta")
    for name in (f"layernorm_{kind}_{end}", f"{short}_{end}_factor")
)

FAMILY = Family(
    "minimax_m1",
    ("minimax_m1", "minimax", "minimax_text_01"),
    ("MiniMaxM1ForCausalLM", "MiniMaxForCausalLM", "MiniMaxText01ForCausalLM"),
    read,
)
