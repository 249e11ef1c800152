"""LongCat-Flash: two MLA and two dense FFN per layer beside one mixture with zero-compute experts."""

from __future__ import annotations

from costmodel.models.config import MAX_EXPERTS
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, mixture
from costmodel.models.parts.mla import Latent, latent_attention
from costmodel.models.parts.mtp import next_token_modules, num_modules
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """``zero_expert_num`` rows of the router stand for experts that return their input."""
    c, latent = b.config, Latent.read(b)
    count = c.size("num_layers", high=2**10)
    if c.has("num_hidden_layers"):
        c.size("num_hidden_layers", high=2**11)
    bias = c.flag("attention_bias", default=False)
    width = c.size("ffn_hidden_size", "intermediate_size")
    expert_width = c.size("expert_ffn_hidden_size", "moe_intermediate_size")
    sound = c.log.so_far()
    num = c.size("n_routed_experts", high=MAX_EXPERTS)
    top_k = c.size("moe_topk", "num_experts_per_tok", high=MAX_EXPERTS)
    zeros = c.size("zero_expert_num", default=0, because="none", low=0, high=MAX_EXPERTS)
    if zeros:
        c.choice("zero_expert_type", allowed=("identity", "drop"), default="identity")
    if sound() and top_k > num + zeros:
        c.problem("moe_topk", f"{top_k} experts per token, but only {num + zeros} router rows")
    experts = Experts(num, top_k, expert_width)
    c.ignore("router_bias", "mla_scale_q_lora", "mla_scale_kv_lora", "attention_method", "head_dim")
    c.ignore("qk_head_dim", "router_dtype", "n_group", "topk_group", "n_shared_experts")
    modules = num_modules(b, "num_nextn_predict_layers", "mtp_num_layers")
    c.log.note(
        f"{top_k} of {num + zeros} router rows are chosen; {top_k * num / (num + zeros):g} experts "
        "with weights are expected per token"
    )

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        parts = [
            part
            for half in range(2)
            for part in (
                latent_attention(b, f"{name}.self_attn.{half}", latent, bias=bias),
                dense_ffn(b, f"{name}.mlps.{half}", width),
            )
        ]
        moe = mixture(
            b, f"{name}.mlp", experts, router_bias=True, zero_experts=zeros,
            router="router.classifier",
        )  # fmt: skip
        return layer(b, *parts, moe, norms=4 * b.hidden)

    def draft(index: int) -> Layer:
        name = f"model.mtp.layers.{index}"
        return layer(b, latent_attention(b, f"{name}.self_attn", latent, bias=bias),
                     dense_ffn(b, f"{name}.mlp", width))  # fmt: skip

    return decoder(
        b, at, num_layers=count, mtp=lambda: next_token_modules(b, modules, draft, count)
    )


FAMILY = Family(
    "longcat",
    ("longcat_flash", "longcat"),
    ("LongcatFlashForCausalLM", "LongcatCausalLM"),
    read,
)
