"""Step-3: queries of all heads from one shared low-rank projection (MFA), one key and value head.

Source: Step-3 report, section 3 (arXiv:2507.19427); shapes as vLLM's ``step3_text`` loads them.
"""

from __future__ import annotations

from costmodel.models.config import MAX_EXPERTS
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS, decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, ffn_weights, mixture
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """``share_q_dim`` is the rank of the queries; ``moe_layers_enum`` lists the mixtures."""
    c, count = b.config, b.num_layers
    heads, dim = b.heads, b.head_dim(256)
    if c.size("num_attention_groups", "num_key_value_heads", default=1, high=2**12) != 1:
        c.problem("num_attention_groups", "only 1 is understood: one key and value head")
    rank = c.size("share_q_dim", default=dim, because="one head's width")
    sound = c.log.so_far()
    experts = Experts(
        c.size("moe_num_experts", "n_routed_experts", high=MAX_EXPERTS),
        c.size("moe_top_k", "num_experts_per_tok", high=MAX_EXPERTS),
        c.size("moe_intermediate_size"),
    )
    if sound() and experts.top_k > experts.num:
        c.problem("moe_top_k", f"{experts.top_k} experts per token, but only {experts.num}")
    shared_width = c.size("share_expert_dim", low=0)
    width, sparse = b.ffn_width, c.indices("moe_layers_enum", count)
    if sparse is None:
        c.log.note("assumed: moe_layers_enum not given: all layers but the first have experts")
        sparse = list(range(1, count))
    chosen = set(sparse)
    c.optional_size("max_position_embedding", "max_seq_len", because="no limit", high=MAX_POSITIONS)
    c.ignore("use_mfa", "use_moe", "att_impl_type", "moe_every_n_layer", "moe_layer_offset",
             "norm_expert_weight", "moe_router_activation", "share_expert_dims")  # fmt: skip

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, 1, dim, kind="mfa", vectors=rank, query_rank=rank
        )
        if index not in chosen:
            return layer(b, attention, dense_ffn(b, f"{name}.mlp", width))
        shared = ffn_weights(b, f"{name}.share_expert", shared_width, prefix="shared expert's ")
        moe = mixture(
            b, f"{name}.moe", experts, num_shared=int(shared_width > 0),
            shared=shared if shared_width else (),
        )  # fmt: skip
        return layer(b, attention, moe)

    return decoder(b, at)


FAMILY = Family(
    "step3",
    ("step3_text", "step3_vl", "step3"),
    ("Step3TextForCausalLM", "Step3VLForConditionalGeneration"),
    read,
)
