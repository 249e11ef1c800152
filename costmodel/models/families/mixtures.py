"""Mixture-of-experts decoders that differ in little: one recipe each."""

from __future__ import annotations

from costmodel.models.parts.mixture_recipe import Mixed
from costmodel.models.parts.recipe import Recipe, recipe_family

_SHARED = Mixed(
    groups=True, router_bias=True, shared_keys=("n_shared_experts", "num_shared_experts")
)

_RECIPES = {
    "afmoe": Recipe(
        "AfmoeForCausalLM", bias="attention_bias", qk_norm="head", norms=4, gate="full",
        window="pattern",
        mixture=Mixed(router_bias=True, shared_keys=("num_shared_experts",),
                      dense_first="num_dense_layers"),
        no_effect=("global_attn_every_n_layers", "mup_enabled", "route_scale"),
    ),
    "aria_text": Recipe(
        "AriaTextForCausalLM", bias="attention_bias", mlp_bias="mlp_bias",
        mixture=Mixed(width_keys=("intermediate_size",), shared_keys=("moe_num_shared_experts",),
                      shared_default=2),
    ),
    "axk1": Recipe("AXK1ForCausalLM", latent=True, bias="attention_bias", norms=3, mixture=_SHARED,
                   no_effect=("topk_method",)),
    "beam": Recipe(
        "BeamForCausalLM", bias="attention_bias", qk_norm="head", norms=4, gate="full",
        head_vectors=1, window="types",
        mixture=Mixed(groups=True, router_bias=True),
    ),
    "dots1": Recipe(
        "Dots1ForCausalLM", bias="attention_bias", qk_norm="head", window="types", mixture=_SHARED,
    ),
    "exaone_moe": Recipe(
        "ExaoneMoeForCausalLM", qk_norm="head", window="pattern", mixture=_SHARED,
        no_effect=("sliding_window_pattern",),
    ),
    "flex_olmo": Recipe(
        "FlexOlmoForCausalLM", bias="attention_bias", qk_norm="full",
        mixture=Mixed(width_keys=("intermediate_size",)),
    ),
    "flint": Recipe(
        "FlintForCausalLM", bias="attention_bias", qk_norm="head", head_vectors=1, window="types",
        mixture=Mixed(shared_width_keys=("shared_expert_intermediate_size",)),
    ),
}  # fmt: skip

FAMILY = recipe_family("mixtures", _RECIPES)
