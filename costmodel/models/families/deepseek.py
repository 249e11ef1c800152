"""DeepSeek-V2, V3, R1, V3.2 and what shares their code: Kimi-K2, GLM-4.7-Flash, GLM-5."""

from __future__ import annotations

from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, shared_mixture
from costmodel.models.parts.mla import Indexer, Latent, latent_attention
from costmodel.models.parts.mtp import next_token_modules, num_modules
from costmodel.models.parts.schedule import index_owners, sparse_layers
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """MLA in every layer, with an indexer where the config has one; dense first, then MoE."""
    c, latent, experts = b.config, Latent.read(b), Experts.read(b, groups=True)
    count = b.num_layers
    has_index = any(c.has(key) for key in ("index_topk", "index_n_heads", "index_head_dim"))
    indexer = Indexer.read(b) if has_index or "v32" in str(c.data.get("model_type")) else None
    owners = index_owners(b, count) if indexer else []
    c.ignore("index_topk_freq", "index_skip_topk_offset", "index_share_for_mtp_iteration")
    c.ignore(
        "head_dim", "qk_head_dim"
    )  # meaningless for MLA: 64 or 192 in GLM-5, 256 = nope + rope
    router_bias = b.config.choice(
        "topk_method",
        allowed=("greedy", "group_limited_greedy", "noaux_tc"),
        default="noaux_tc",
        because="class default: bias-corrected router",
    ) == "noaux_tc"  # fmt: skip
    bias = c.flag("attention_bias", default=False)
    num_shared = c.size("n_shared_experts", "num_shared_experts", low=0, high=2**10)
    width, sparse = (
        b.ffn_width,
        sparse_layers(b, count, first_default=1 if b.config.class_defaults else None),
    )

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = latent_attention(
            b, f"{name}.self_attn", latent, indexer=indexer, bias=bias,
            owns_index=index >= count or bool(owners and owners[index]),
        )  # fmt: skip
        if index < count and not sparse[index]:
            return layer(b, attention, dense_ffn(b, f"{name}.mlp", width))
        return layer(
            b,
            attention,
            shared_mixture(b, f"{name}.mlp", experts, num_shared, router_bias=router_bias),
        )

    modules = num_modules(b)
    return decoder(b, at, mtp=lambda: next_token_modules(b, modules, at, count))


FAMILY = Family(
    "deepseek",
    (
        "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe_lite", "glm_moe_dsa", "mistral4",
    ),
    (
        "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM",
        "Glm4MoeLiteForCausalLM", "GlmMoeDsaForCausalLM", "Mistral4ForCausalLM",
        "MistralLarge3ForCausalLM",
    ),
    read,
)  # fmt: skip
