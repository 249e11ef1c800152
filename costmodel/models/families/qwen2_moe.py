"""Qwen1.5/2-MoE: GQA with bias on q, k and v, one wide gated shared expert."""

from __future__ import annotations

from costmodel.models.config import MAX_LAYERS
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, ffn_weights, mixture
from costmodel.models.parts.windows import upper_windows
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """MoE in every ``decoder_sparse_step``-th layer but ``mlp_only_layers``."""
    c, count = b.config, b.num_layers
    heads, kv_heads, dim, width = b.heads, b.kv_heads(), b.head_dim(), b.ffn_width
    bias = c.flag("qkv_bias", default=True)
    experts, shared_width = Experts.read(b), c.size("shared_expert_intermediate_size")
    step = c.size("decoder_sparse_step", default=1, because="every layer", high=MAX_LAYERS)
    dense = {index for index in range(count) if (index + 1) % step}
    dense.update(c.indices("mlp_only_layers", count) or ())
    windows = upper_windows(b, count)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, window=windows[index]
        )
        if index in dense:
            return layer(b, attention, dense_ffn(b, f"{name}.mlp", width))
        shared = (
            *ffn_weights(b, f"{name}.mlp.shared_expert", shared_width, prefix="shared expert's "),
            b.matrix("shared expert gate", f"{name}.mlp.shared_expert_gate", 1, b.hidden,
                     "replicated", role="plain"),
        )  # fmt: skip
        return layer(b, attention, mixture(b, f"{name}.mlp", experts, shared=shared, num_shared=1))

    return decoder(b, at)


FAMILY = Family("qwen2_moe", ("qwen2_moe",), ("Qwen2MoeForCausalLM",), read)
