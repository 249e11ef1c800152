"""Qwen3-MoE (also Qwen3-Coder and the text model of Qwen3-VL-MoE)."""

from __future__ import annotations

from costmodel.models.config import MAX_LAYERS
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, mixture
from costmodel.models.parts.windows import switched_window
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """GQA with a norm per head on q and k; MoE in every ``decoder_sparse_step``-th layer."""
    c = b.config
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim(128)
    bias = c.flag("attention_bias", "qkv_bias", default=False)
    experts, count = Experts.read(b), b.num_layers
    if c.size("shared_expert_intermediate_size", default=0, because="no shared expert", low=0):
        c.problem("shared_expert_intermediate_size", "Qwen3-MoE has no shared expert")
    if not c.flag("use_qk_norm", default=True, because="always on in this family"):
        c.problem("use_qk_norm", "Qwen3-MoE always has q/k norms")
    step = c.size("decoder_sparse_step", default=1, because="every layer", high=MAX_LAYERS)
    dense = c.indices("mlp_only_layers", count)
    if dense is None:
        c.log.note("assumed: mlp_only_layers = [] (not given)")
    is_dense = [(index + 1) % step != 0 for index in range(count)]
    for index in dense or ():
        is_dense[index] = True
    width = b.ffn_width if any(is_dense) else 0
    c.ignore("intermediate_size")
    window = switched_window(b)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias,
            vectors=2 * dim, window=window,
        )  # fmt: skip
        if is_dense[index]:
            return layer(b, attention, dense_ffn(b, f"{name}.mlp", width))
        return layer(b, attention, mixture(b, f"{name}.mlp", experts))

    return decoder(b, at)


FAMILY = Family(
    "qwen3_moe",
    ("qwen3_moe", "qwen3_vl_moe_text", "qwen3_vl_moe", "qwen3_omni_moe_text", "qwen3_omni_moe"),
    (
        "Qwen3MoeForCausalLM",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3OmniMoeForConditionalGeneration",
    ),
    read,
)
