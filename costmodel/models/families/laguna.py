"""Laguna: head counts per layer, a gate per head, windows, dense first layer, one shared expert."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS, decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, ffn_weights, mixture
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """Sigmoid router with a selection bias; norms per head on q and k."""
    c, count = b.config, b.num_layers
    heads, kv_heads, dim, width = b.heads, b.kv_heads(), b.head_dim(128), b.ffn_width
    counts = c.sizes("num_attention_heads_per_layer", count, low=1, high=2**12)
    if counts is None:
        c.log.note("assumed: num_attention_heads_per_layer not given: all layers have the same")
        counts = [heads] * count
    for index, num in enumerate(counts):
        if num % kv_heads:
            c.problem(
                f"num_attention_heads_per_layer[{index}]", f"{kv_heads} does not divide {num}"
            )
    bias = c.flag("attention_bias", default=False)
    experts, shared_width = Experts.read(b), c.size("shared_expert_intermediate_size")
    types = c.strings("layer_types", ("full_attention", "sliding_attention"), count)
    if types is None:
        c.log.note("assumed: layer_types not given: full attention in every layer (class default)")
        types = ["full_attention"] * count
    window = c.size("sliding_window", default=512, high=MAX_POSITIONS)
    feeds = c.strings("mlp_layer_types", ("dense", "sparse"), count)
    if feeds is None:
        c.log.note("assumed: mlp_layer_types not given: the first layer is dense (class default)")
        feeds = ["dense", *["sparse"] * (count - 1)]
    gates = ("per-head", "per_head", True)
    if c.data.get("gating", "per-head") not in gates:
        c.problem("gating", "only a gate per head is known in this family")
    c.ignore("gating", "gating_types", "mlp_only_layers", "decoder_sparse_step")
    c.ignore(
        "moe_routed_scaling_factor",
        "moe_apply_router_weight_on_input",
        "moe_router_logit_softcapping",
    )

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        slides = types[index] == "sliding_attention"
        attention = grouped_query(
            b, f"{name}.self_attn", counts[index], kv_heads, dim, qkv_bias=bias, o_bias=bias,
            vectors=2 * dim, gate_rows=counts[index], window=window if slides else None,
        )  # fmt: skip
        if feeds[index] == "dense":
            return layer(b, attention, dense_ffn(b, f"{name}.mlp", width))
        shared = ffn_weights(
            b, f"{name}.mlp.shared_expert", shared_width, prefix="shared expert's "
        )
        moe = mixture(b, f"{name}.mlp", experts, router_bias=True, shared=shared, num_shared=1)
        return layer(b, attention, moe)

    return decoder(b, at)


FAMILY = Family("laguna", ("laguna",), ("LagunaForCausalLM",), read)
