"""DBRX: its own key names, attention and FFN settings in nested objects."""

from __future__ import annotations

from costmodel.models.config import MAX_EXPERTS, Config
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, mixture
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """GQA with a fused projection, two norms per layer, sixteen gated experts."""
    heads = b.heads
    attention_config, ffn = _section(b, "attn_config"), _section(b, "ffn_config")
    attention_config.ignore("model_type", "clip_qkv", "rope_theta", "attn_pdrop")
    ffn.ignore(
        "model_type", "moe_jitter_eps", "moe_loss_weight", "ffn_act_fn", "uniform_expert_assignment"
    )
    ffn.ignore("moe_normalize_expert_weights")
    kv_heads = attention_config.size("kv_n_heads", high=heads)
    experts = Experts(
        ffn.size("moe_num_experts", high=MAX_EXPERTS),
        ffn.size("moe_top_k", high=MAX_EXPERTS),
        ffn.size("ffn_hidden_size"),
    )
    if experts.top_k > experts.num:
        ffn.problem("moe_top_k", f"{experts.top_k} experts per token of {experts.num}")
    dim = b.head_dim()

    def at(index: int) -> Layer:
        name = f"transformer.blocks.{index}"
        attention = grouped_query(b, f"{name}.norm_attn_norm.attn", heads, kv_heads, dim)
        return layer(b, attention, mixture(b, f"{name}.ffn", experts, router="router"))

    return decoder(b, at)


def _section(b: Builder, key: str) -> Config:
    found = b.config.section(key)
    if found is None:
        raise b.config.fail(key, "is missing")
    return found


FAMILY = Family("dbrx", ("dbrx",), ("DbrxForCausalLM",), read)
