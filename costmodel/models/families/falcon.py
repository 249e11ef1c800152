"""Falcon 7B, 40B, 180B and 11B: parallel branches, one or few KV heads, no gate."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """``new_decoder_architecture`` has ``num_kv_heads``; before, ``multi_query`` meant one."""
    c = b.config
    heads, dim = b.heads, b.head_dim()
    new = c.flag("new_decoder_architecture", default=False)
    multi_query = c.flag("multi_query", default=True)
    c.ignore("num_kv_heads", "n_head_kv")
    if new:
        kv_heads = c.size(
            "num_kv_heads", "n_head_kv", default=heads, because="as queries", high=heads
        )
    else:
        kv_heads = 1 if multi_query else heads
    if heads % kv_heads:
        c.problem("num_kv_heads", f"{kv_heads} does not divide the {heads} query heads")
    bias = c.flag("bias", default=False)
    width = c.size("ffn_hidden_size", default=4 * b.hidden, because="four times the hidden size")
    c.ignore("alibi", "activation", "apply_residual_connection_post_layernorm", "rope_type")
    parallel = c.flag("parallel_attn", default=True)
    norms = c.size(
        "num_ln_in_parallel_attn",
        default=2 if new else 1,
        because="by decoder architecture",
        high=2,
    )
    norms = norms if parallel else 2

    def at(index: int) -> Layer:
        name = f"transformer.h.{index}"
        attention = grouped_query(
            b, f"{name}.self_attention", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias
        )
        ffn = dense_ffn(b, f"{name}.mlp", width, gated=False, bias=bias)
        return layer(b, attention, ffn, norms=2 * norms * b.hidden)

    return decoder(b, at, tied_default=True, final_norm=2 * b.hidden)


FAMILY = Family(
    "falcon", ("falcon", "RefinedWeb", "RefinedWebModel"),
    ("FalconForCausalLM", "RWForCausalLM"), read,
)  # fmt: skip
