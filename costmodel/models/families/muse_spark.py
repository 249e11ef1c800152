"""Muse Spark: windowed and full attention with an output gate, experts of a narrower vector.

Source: the model's class in transformers (Apache-2.0).
"""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, mixture
from costmodel.models.parts.schedule import listed_sparse_layers
from costmodel.models.parts.windows import typed_windows
from costmodel.models.registry import Family
from costmodel.models.spec import DenseFFN, Layer, ModelSpec, MoE


def read(b: Builder) -> ModelSpec:
    """Three norms and two residual gates per layer; ``moe_hidden_size`` is what experts read."""
    c, count = b.config, b.num_layers
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim(64)
    bias = c.flag("attention_bias", default=False)
    windows, sparse = (
        typed_windows(b, count),
        listed_sparse_layers(b, count, ("first_k_dense_replace",), 0),
    )
    experts = Experts.read(b)
    inner = c.size("moe_hidden_size", default=b.hidden, because="the hidden size")
    width = b.ffn_width if not all(sparse) else 0
    c.ignore("intermediate_size", "layer_rope_theta", "qk_scale_factor", "output_multiplier",
             "residual_gate_temperature")  # fmt: skip

    def feed(at: str, index: int) -> DenseFFN | MoE:
        if not sparse[index]:
            return dense_ffn(b, at, width)
        latent = (
            b.matrix("latent down", f"{at}.pre_expert_proj", inner, b.hidden, "replicated"),
            b.matrix("latent up", f"{at}.post_expert_proj", b.hidden, inner, "replicated"),
            b.vector("latent norms", 2 * inner),
        )
        return mixture(b, at, experts, shared=latent, input_dim=inner)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias,
            gate_rows=heads * dim, gate_in="gate_proj", window=windows[index],
        )  # fmt: skip
        return layer(b, attention, feed(f"{name}.mlp", index), norms=5 * b.hidden)

    return decoder(b, at)


FAMILY = Family(
    "muse_spark",
    ("muse_spark_text", "muse_spark"),
    ("MuseSparkForCausalLM", "MuseSparkForConditionalGeneration"),
    read,
)
