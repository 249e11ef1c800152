"""Ling and Ring (Bailing MoE): GQA with q/k norms and grouped routing; Ling 3 mixes KDA and MLA."""

from __future__ import annotations

from costmodel.models.config import MAX_LAYERS
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, ffn_weights, mixture
from costmodel.models.parts.mla import Latent, latent_attention
from costmodel.models.parts.mtp import next_token_modules, num_modules
from costmodel.models.parts.schedule import sparse_layers
from costmodel.models.parts.states.linear import DeltaHeads, kimi_delta, state_element_bytes
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, Layer, LinearState, ModelSpec


def read(b: Builder) -> ModelSpec:
    """Dense first layers, then sigmoid-routed experts with a selection bias and shared experts."""
    c, count = b.config, b.num_layers
    kind = str(c.data.get("model_type") or c.data.get("architectures")).lower()
    hybrid = "hybrid" in kind or "v3" in kind
    experts = Experts.read(b, groups=True)
    bias = c.flag("moe_router_enable_expert_bias", default=True)
    num_shared = c.size("num_shared_experts", low=0, high=2**10)
    shared_width = c.size(
        "moe_shared_expert_intermediate_size", default=experts.width, because="the expert width"
    )
    width, sparse, modules = b.ffn_width, sparse_layers(b, count), num_modules(b)
    attend = _Hybrid(b, count) if hybrid else _Plain(b)
    c.ignore("score_function", "router_dtype", "norm_head", "norm_softmax", "use_rmsnorm")

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = attend(index)
        if index < count and not sparse[index]:
            return layer(b, attention, dense_ffn(b, f"{name}.mlp", width))
        shared = ffn_weights(
            b, f"{name}.mlp.shared_experts", num_shared * shared_width, prefix="shared experts' "
        )
        moe = mixture(
            b, f"{name}.mlp", experts, router_bias=bias, num_shared=num_shared,
            shared=shared if num_shared else (),
        )  # fmt: skip
        return layer(b, attention, moe)

    return decoder(
        b, at, never_tied="hybrid" in kind,
        mtp=lambda: next_token_modules(b, modules, at, count),
    )  # fmt: skip


class _Plain:
    def __init__(self, b: Builder):
        c = b.config
        self.b, self.heads, self.kv_heads = b, b.heads, b.kv_heads()
        self.dim = b.head_dim()
        self.norm = c.flag("use_qk_norm", default=False)
        self.bias = c.flag("use_qkv_bias", default=False)
        self.o_bias = c.flag("use_bias", default=False)

    def __call__(self, index: int) -> Attention:
        return grouped_query(
            self.b, f"model.layers.{index}.attention", self.heads, self.kv_heads, self.dim,
            qkv_bias=self.bias, o_bias=self.o_bias, vectors=2 * self.dim if self.norm else 0,
        )  # fmt: skip


class _Hybrid:
    def __init__(self, b: Builder, count: int):
        c = b.config
        self.b, self.count, self.latent = b, count, Latent.read(b)
        heads = c.size("linear_num_heads", default=b.heads, because="as queries", high=2**12)
        if c.has("linear_head_dim"):
            c.ignore("head_dim")
        dim = c.size("linear_head_dim", default=None if c.has("linear_head_dim") else b.head_dim(),
                     because="head_dim", high=2**14)  # fmt: skip
        conv = c.size("linear_conv_kernel_dim", "short_conv_kernel_size", high=64)
        self.delta = DeltaHeads(heads, heads, dim, dim, conv)
        self.step = c.size("layer_group_size", high=MAX_LAYERS)
        self.rank = (
            None
            if c.flag(
                "no_kda_lora",
                default=c.data.get("model_type") == "bailing_hybrid",
                because="full projections in the class",
            )
            else dim
        )
        kind = c.choice(
            "gated_attention_proj_granularity_type", allowed=("head_wise", "element_wise"),
            default="head_wise", because="as the class has it",
        )  # fmt: skip
        self.by_head = kind == "head_wise"
        self.element = state_element_bytes(c)

    def __call__(self, index: int) -> Attention | LinearState:
        b, at, heads = self.b, f"model.layers.{index}.attention", self.b.heads
        if index >= self.count or (index + 1) % self.step == 0:
            gate = heads if self.by_head else heads * self.latent.v
            return latent_attention(b, at, self.latent, gate_rows=gate)
        return kimi_delta(
            b, at, self.delta, self.element, decay_rank=self.rank, gate_rank=self.rank
        )


FAMILY = Family(
    "bailing",
    ("bailing_moe", "bailing_moe_v2", "bailing_hybrid", "bailing_moe_v3"),
    ("BailingMoeV2ForCausalLM", "BailingMoeForCausalLM", "BailingMoeV3ForCausalLM"),
    read,
)
