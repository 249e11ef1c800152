"""GLM-4.5, 4.6, 4.7 and dots.llm1: GQA with bias, dense first layers, sigmoid-routed MoE, one MTP layer."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, shared_mixture
from costmodel.models.parts.mtp import next_token_modules, num_modules
from costmodel.models.parts.schedule import sparse_layers
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """Bias on q, k and v only; q/k norms per head where ``use_qk_norm``."""
    c = b.config
    heads, kv_heads, dim, count = b.heads, b.kv_heads(), b.head_dim(), b.num_layers
    experts = Experts.read(b, groups=True)
    bias = c.flag("attention_bias", default=False)
    dots = "dots" in str(c.data.get("model_type") or c.data.get("architectures")).lower()
    norm = c.flag("use_qk_norm", default=dots)
    c.ignore("sliding_window", "max_window_layers", "layer_types", "use_sliding_window")
    num_shared = c.size("n_shared_experts", low=0, high=2**10)
    width, sparse, modules = (
        b.ffn_width,
        sparse_layers(b, count, first_default=1 if b.config.class_defaults else None),
        num_modules(b),
    )

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias,
            vectors=2 * dim if norm else 0,
        )  # fmt: skip
        if index < count and not sparse[index]:
            return layer(b, attention, dense_ffn(b, f"{name}.mlp", width))
        return layer(b, attention, shared_mixture(b, f"{name}.mlp", experts, num_shared))

    return decoder(b, at, mtp=lambda: next_token_modules(b, modules, at, count))


FAMILY = Family(
    "glm4_moe",
    ("glm4_moe", "glm4v_moe_text", "glm4v_moe", "dots1"),
    ("Glm4MoeForCausalLM", "Dots1ForCausalLM", "Glm4vMoeForConditionalGeneration"),
    read,
)
