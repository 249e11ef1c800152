"""OLMoE: full-width q/k norms, every layer a mixture; ``intermediate_size`` is the expert width."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, mixture
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """Softmax router without bias, no shared expert."""
    c = b.config
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim()
    experts = Experts.read(b, width_keys=("intermediate_size",))
    bias = c.flag("attention_bias", default=False)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias,
            vectors=(heads + kv_heads) * dim,
        )  # fmt: skip
        return layer(b, attention, mixture(b, f"{name}.mlp", experts))

    return decoder(b, at)


FAMILY = Family("olmoe", ("olmoe",), ("OlmoeForCausalLM",), read)
