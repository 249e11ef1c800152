"""MiniMax-M3: GQA, block-sparse in most layers by a small index, dense first layers, shared expert."""

from __future__ import annotations

from costmodel.models.families.minimax_m2 import ignore_unreleased_mtp, qk_norm_size
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, ffn_weights, mixture
from costmodel.models.parts.schedule import sparse_layers
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec, Weights


def read(b: Builder) -> ModelSpec:
    """Sparse layers own index queries and one index key; they read the best blocks of tokens."""
    c, count = b.config, b.num_layers
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim()
    experts = Experts.read(b, width_keys=("moe_intermediate_size", "intermediate_size"))
    dense_width = c.size("dense_intermediate_size")
    num_shared = c.size("n_shared_experts", default=1, because="class default", low=0, high=2**10)
    shared_width = c.size("shared_intermediate_size", default=experts.width, low=0)
    vectors = qk_norm_size(b, heads, kv_heads, dim)
    gate = heads * dim if c.flag("attention_output_gate", default=False) else 0
    router_bias = c.flag("use_routing_bias", default=True)
    c.ignore("use_gemma_norm")
    ignore_unreleased_mtp(b)
    is_moe, sparse = (
        sparse_layers(b, count, first_default=0 if b.config.class_defaults else None),
        _Sparse(b, count),
    )

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        indexed = sparse.layers[index]
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, vectors=vectors, gate_rows=gate,
            kind="gqa-sparse" if indexed else None,
            index=(sparse.top_k, sparse.heads, sparse.dim) if indexed else None,
            extra=sparse.weights(name) if indexed else (),
        )  # fmt: skip
        if not is_moe[index]:
            return layer(b, attention, dense_ffn(b, f"{name}.mlp", dense_width))
        shared = ffn_weights(
            b, f"{name}.mlp.shared_experts", num_shared * shared_width, prefix="shared expert's "
        )
        moe = mixture(
            b, f"{name}.mlp", experts, router_bias=router_bias, num_shared=num_shared,
            shared=shared if num_shared else (),
        )  # fmt: skip
        return layer(b, attention, moe)

    return decoder(b, at)


class _Sparse:
    """``sparse_attention_config``: which layers, how many blocks, the index's heads and width."""

    def __init__(self, b: Builder, count: int):
        self.b = b
        section = b.config.section("sparse_attention_config")
        self.layers = [False] * count
        self.top_k = self.heads = self.dim = 0
        if section is None:
            b.config.log.note(
                "assumed: sparse_attention_config not given: full attention everywhere"
            )
            return
        section.ignore("sparse_disable_index_value", "sparse_init_block", "sparse_local_block")
        section.ignore("sparse_score_type")
        if not section.flag("use_sparse_attention", default=True):
            section.ignore(*section.data)
            return
        flags = section.sizes("sparse_attention_freq", count, high=1)
        if flags is None:
            raise section.fail("sparse_attention_freq", "is missing: which layers are sparse?")
        self.layers = [flag == 1 for flag in flags]
        block = section.size("sparse_block_size")
        self.top_k = block * section.size("sparse_topk_blocks")
        self.heads = section.size("sparse_num_index_heads", high=2**12)
        self.dim = section.size("sparse_index_dim", high=2**14)

    def weights(self, name: str) -> tuple[Weights, ...]:
        """The index projections of one layer."""
        b, at = self.b, f"{name}.self_attn"
        return (
            b.matrix("index query", f"{at}.index_q_proj", self.heads * self.dim, b.hidden,
                     "replicated"),
            b.matrix("index key", f"{at}.index_k_proj", self.dim, b.hidden, "replicated"),
            b.vector("index norms", 2 * self.dim),
        )  # fmt: skip


FAMILY = Family(
    "minimax_m3",
    ("minimax_m3", "minimax_m3_vl", "minimax_m3_text", "minimax_m3_vl_text"),
    (
        "MiniMaxM3ForCausalLM",
        "MiniMaxM3ForConditionalGeneration",
        "MiniMaxM3VLForCausalLM",
        "MiniMaxM3VLForConditionalGeneration",
        "MiniMaxM3SparseForConditionalGeneration",
    ),
    read,
)
