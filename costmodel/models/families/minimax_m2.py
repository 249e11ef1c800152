"""MiniMax-M2 and its updates: GQA with full-width q/k norms, every layer a mixture, no shared expert."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, ffn_weights, mixture
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """``qk_norm_type`` per_layer norms all heads at once; ``intermediate_size`` is the expert width."""
    c, count = b.config, b.num_layers
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim()
    experts = Experts.read(b, width_keys=("intermediate_size",))
    vectors = qk_norm_size(b, heads, kv_heads, dim)
    types = c.sizes("attn_type_list", count, high=1)
    if types is not None and not all(types):
        raise c.fail("attn_type_list", "M2 has softmax attention (1) in every layer")
    router_bias = c.flag("use_routing_bias", default=True)
    shared_width = c.size("shared_intermediate_size", default=0, because="no shared expert", low=0)
    c.ignore("attn_window_size", "sliding_window", "mlp_intermediate_size", "layernorm_mlp_beta")
    c.ignore("layernorm_full_attention_beta", "layernorm_linear_attention_beta")
    ignore_unreleased_mtp(b)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(b, f"{name}.self_attn", heads, kv_heads, dim, vectors=vectors)
        shared = ffn_weights(b, f"{name}.shared_mlp", shared_width) if shared_width else ()
        moe = mixture(
            b, f"{name}.block_sparse_moe", experts, router_bias=router_bias, shared=shared,
            num_shared=int(bool(shared)),
        )  # fmt: skip
        return layer(b, attention, moe)

    return decoder(b, at)


def qk_norm_size(b: Builder, heads: int, kv_heads: int, dim: int) -> int:
    """Norm weights of q and k: one per head width, or one over all heads."""
    c = b.config
    if not c.flag("use_qk_norm", default=True):
        c.ignore("qk_norm_type")
        return 0
    kind = c.choice("qk_norm_type", allowed=("per_layer", "per_head"), default="per_layer")
    return (heads + kv_heads) * dim if kind == "per_layer" else 2 * dim


def ignore_unreleased_mtp(b: Builder) -> None:
    """MiniMax configs declare MTP modules that their checkpoints do not hold."""
    c = b.config
    c.ignore("use_mtp", "mtp_transformer_layers", "num_mtp_modules", "num_nextn_predict_layers")
    if any(c.data.get(key) for key in ("num_mtp_modules", "num_nextn_predict_layers")):
        c.log.note("MTP modules are declared, but the released checkpoints hold none: 0 counted")


FAMILY = Family("minimax_m2", ("minimax_m2",), ("MiniMaxM2ForCausalLM",), read)
