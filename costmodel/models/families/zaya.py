"""ZAYA: attention over convolved queries and keys (CCA), one expert per token chosen by a small MLP."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, mixture
from costmodel.models.parts.states.recurrent import token_convolutions
from costmodel.models.parts.windows import typed_windows
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """Half of the values come from the token before; the router keeps a state between layers."""
    c, count = b.config, b.num_layers
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim(128)
    bias = c.flag("attention_bias", default=False)
    experts = Experts.read(b)
    inner = c.size("router_hidden_size", default=256, because="class default")
    first = c.size("cca_time0", default=2, because="class default", high=64)
    second = c.size("cca_time1", default=2, because="class default", high=64)
    windows = typed_windows(b, count, lambda _, __: False)
    head_bias = c.flag("lm_head_bias", default=False)
    channels = (heads + kv_heads) * dim

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        grouped = b.matrix(
            "grouped convolution", f"{name}.self_attn.conv_qk_grouped", channels, dim * second,
            "heads", role="plain", bias=True,
        )  # fmt: skip
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias,
            window=windows[index], vectors=kv_heads + channels, extra=(grouped,),
        )  # fmt: skip
        # depthwise taps of q and k, and the hidden state of the token before
        convolution = token_convolutions(b, channels, first)
        rows = experts.num + 1  # one more that skips the experts
        router = (
            b.matrix("router in", f"{name}.mlp.gate.down_proj", inner, b.hidden, "replicated",
                     role="plain", bias=True),
            b.matrix("router MLP", f"{name}.mlp.gate.router_mlp.fc1", inner, inner, "replicated",
                     role="plain", bias=True, copies=2),
            b.matrix("router out", f"{name}.mlp.gate.router_mlp.out_proj", rows, inner,
                     "replicated", role="plain"),
            b.vector("router's norm and balance", inner + rows + (inner if index else 0)),
        )  # fmt: skip
        moe = mixture(b, f"{name}.mlp", experts, zero_experts=1, routers=router)
        # norms, and a scale and a bias of stream and branch after each
        return layer(b, attention, convolution, moe, norms=10 * b.hidden)

    ends = (b.vector("embedding scale and bias", 2 * b.hidden),)
    return decoder(b, at, tied_default=True, head_bias=head_bias, extra_embedding=ends)


FAMILY = Family("zaya", ("zaya",), ("ZayaForCausalLM",), read)
