"""Reads an architecture nobody knows yet, if its keys are the common ones; says all it assumes.

The form is today's usual decoder: two norms, attention with rotary positions, gated FFN or a mixture
of gated experts. Every key that could shape a matrix must be understood: the loader turns any other
into an error for this reader.
"""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import (
    EXPERT_COUNT_KEYS,
    Experts,
    dense_ffn,
    ffn_weights,
    mixture,
)
from costmodel.models.parts.mla import Indexer, Latent, latent_attention
from costmodel.models.parts.mtp import next_token_modules, num_modules
from costmodel.models.parts.schedule import sparse_layers
from costmodel.models.parts.windows import listed_windows
from costmodel.models.read_log import shown
from costmodel.models.refused import DECODERS
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, DenseFFN, Layer, ModelSpec, MoE

#: Activations that come with a gate matrix in nearly every model.
_GATED = ("silu", "swish", "swiglu", "swigluoai", "gelu_pytorch_tanh", "geglu")


def shapes_something(value: object) -> bool:
    """Whether a key of unknown meaning could shape a matrix: all but fractions and switched-off."""
    return bool(value) and not isinstance(value, float)


def read(b: Builder) -> ModelSpec:
    """The usual decoder. Each assumption becomes a note."""
    c, count = b.config, b.num_layers
    _check_decoder(b)
    c.log.note(
        "warning: the architecture is not known and is read as the usual decoder: check the totals "
        "against the model card. Assumed: two norms per layer, rotary positions, "
        f"{'a gate, an up and a down' if _is_gated(b) else 'an up and a down'} matrix per FFN, "
        "no attention sinks and no output gate"
    )
    attend, feed = _Attend(b, count), _Feed(b, count)
    modules = num_modules(b)

    def at(index: int) -> Layer:
        return layer(b, attend(index), feed(index))

    return decoder(b, at, mtp=lambda: next_token_modules(b, modules, at, count))


def _check_decoder(b: Builder) -> None:
    names = b.outer.data.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if not isinstance(name, str) or not name.endswith(DECODERS):
        kind = b.config.data.get("model_type")
        raise b.config.fail(
            "architectures",
            f"{'none is named' if name is None else shown(name)}, and model_type {shown(kind)} is not known; "
            f"a text decoder of another kind is read where its name ends in {' or '.join(DECODERS)}",
        )


def _is_gated(b: Builder) -> bool:
    found = b.config.data.get("hidden_act", b.config.data.get("hidden_activation", "silu"))
    return found in _GATED


class _Attend:
    """MLA where there is a latent rank, heads with keys and values otherwise."""

    def __init__(self, b: Builder, count: int):
        c = b.config
        self.b, self.count = b, count
        self.bias = c.flag("attention_bias", default=False)
        self.latent = Latent.read(b) if c.has("kv_lora_rank") else None
        if self.latent is not None:
            self.indexer = Indexer.read(b) if c.has("index_topk") else None
            c.ignore("head_dim", "qk_head_dim")
            return
        self.heads, self.kv_heads, self.dim = b.heads, b.kv_heads(), b.head_dim()
        self.qkv_bias = c.flag("qkv_bias", "use_qkv_bias", default=self.bias)
        norm = c.flag("use_qk_norm", "qk_norm", default=False)
        self.vectors = 2 * self.dim if norm else 0
        self.windows = listed_windows(b, count)

    def __call__(self, index: int) -> Attention:
        name = f"model.layers.{index}.self_attn"
        if self.latent is not None:
            return latent_attention(self.b, name, self.latent, indexer=self.indexer, bias=self.bias)
        return grouped_query(
            self.b, name, self.heads, self.kv_heads, self.dim, qkv_bias=self.qkv_bias,
            o_bias=self.bias, vectors=self.vectors,
            window=self.windows[index] if index < self.count else None,
        )  # fmt: skip


class _Feed:
    """A mixture where there are experts, after the dense layers the config names."""

    def __init__(self, b: Builder, count: int):
        c = b.config
        self.b, self.count, self.gated = b, count, _is_gated(b)
        self.bias = c.flag("mlp_bias", default=False)
        self.experts = None
        self.sparse = [False] * count
        if any(c.has(key) for key in EXPERT_COUNT_KEYS):
            own_width = c.has("moe_intermediate_size")
            keys = ("moe_intermediate_size",) if own_width else ("intermediate_size",)
            if not own_width:
                c.log.note("assumed: no moe_intermediate_size: experts are intermediate_size wide")
            self.experts = Experts.read(b, width_keys=keys, groups=True)
            self.num_shared = c.size(
                "n_shared_experts", "num_shared_experts", default=0, because="no shared expert",
                low=0, high=2**10,
            )  # fmt: skip
            self.sparse = sparse_layers(b, count, first_default=0)
            if c.size("decoder_sparse_step", default=1, because="every layer") != 1:
                c.problem("decoder_sparse_step", "only 1 is understood in an unknown architecture")
            method = c.choice(
                "topk_method", allowed=("greedy", "group_limited_greedy", "noaux_tc"),
                default="greedy", because="no selection bias in the router",
            )  # fmt: skip
            self.router_bias = method == "noaux_tc"
            c.log.note("assumed: shared experts are as wide as routed ones")
        self.width = b.ffn_width if not all(self.sparse) else 0
        c.ignore("intermediate_size")

    def __call__(self, index: int) -> DenseFFN | MoE:
        b, at = self.b, f"model.layers.{index}.mlp"
        if self.experts is None or (index < self.count and not self.sparse[index]):
            return dense_ffn(b, at, self.width, gated=self.gated, bias=self.bias)
        shared = ffn_weights(
            b, f"{at}.shared_experts", self.num_shared * self.experts.width, gated=self.gated,
            prefix="shared experts' ",
        )  # fmt: skip
        return mixture(
            b, at, self.experts, gated=self.gated, router_bias=self.router_bias,
            num_shared=self.num_shared,
            shared=shared if self.num_shared else (),
        )  # fmt: skip


GENERIC = Family("unknown architecture", (), (), read)
