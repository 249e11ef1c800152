"""JetMoE: query and output projections are experts too; keys and values are shared by all of them."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, mixture
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """A token's top-k attention experts bring a set of heads each: top-k times the KV heads."""
    c = b.config
    experts = Experts.read(b, width_keys=("intermediate_size",))
    kv_heads = c.size("num_key_value_heads", high=2**12)
    dim = c.size("kv_channels", default=128, because="class default", high=2**14)
    if c.has("num_attention_heads") and b.heads != experts.top_k * kv_heads:
        c.problem("num_attention_heads", f"is {b.heads}, not {experts.top_k} x {kv_heads} heads")
    c.ignore("aux_loss_coef", "activation_function", "num_attention_heads")
    heads, idle = experts.top_k * kv_heads, experts.num - experts.top_k

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        width = kv_heads * dim
        others = (
            b.matrix("idle attention experts", f"{name}.self_attention.experts.input_linear",
                     idle * width, b.hidden, "heads", copies=2),
            b.matrix("attention router", f"{name}.self_attention.experts.router", experts.num,
                     b.hidden, "replicated", role="plain"),
        )  # fmt: skip
        attention = grouped_query(
            b, f"{name}.self_attention", heads, kv_heads, dim, extra=others, vectors=b.hidden
        )
        return layer(b, attention, mixture(b, f"{name}.mlp", experts), norms=3 * b.hidden)

    return decoder(b, at, tied_default=True)


FAMILY = Family("jetmoe", ("jetmoe",), ("JetMoeForCausalLM",), read)
