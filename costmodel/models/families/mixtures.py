"""Mixture-of-experts decoders that differ in little: one recipe each."""

from __future__ import annotations

from dataclasses import replace

from costmodel.models.parts.mixture_recipe import Mixed
from costmodel.models.parts.recipe import Recipe, recipe_family

_SHARED = Mixed(
    groups=True, router_bias=True, shared_keys=("n_shared_experts", "num_shared_experts")
)

_RECIPES = {
    "afmoe": Recipe(
        "AfmoeForCausalLM", bias="attention_bias", qk_norm="head", norms=4, gate="full",
        window="pattern", pattern_keys=("global_attn_every_n_layers",),
        mixture=Mixed(router_bias=True, shared_keys=("num_shared_experts",),
                      dense_keys=("num_dense_layers",), dense_default=1),
        no_effect=("mup_enabled", "route_scale"),
    ),
    "aria_text": Recipe(
        "AriaTextForCausalLM", bias="attention_bias", mlp_bias="mlp_bias",
        mixture=Mixed(width_keys=("intermediate_size",), shared_keys=("moe_num_shared_experts",),
                      shared_default=2),
    ),
    "axk1": Recipe("AXK1ForCausalLM", latent=True, bias="attention_bias", norms=3,
                   mixture=replace(_SHARED, dense_default=1),
                   no_effect=("topk_method",)),
    "hy_v4": Recipe(
        "HYV4ForCausalLM", latent=True, bias="attention_bias", gate="full", head_vectors=1,
        streams="hc_mult", mixture=replace(_SHARED, dense_default=1),
        no_effect=("hc_magnitude", "learnable_sink_init"),
    ),
    "beam": Recipe(
        "BeamForCausalLM", bias="attention_bias", qk_norm="head", norms=4, gate="full",
        head_vectors=1, window="types", slides=lambda i, n: (i + 1) % 6 != 0 and i != n - 1,
        mixture=Mixed(groups=True, router_bias=True, dense_default=3),
    ),
    "dots1": Recipe(
        "Dots1ForCausalLM", bias="attention_bias", qk_norm="head", window="types", mixture=_SHARED,
    ),
    "exaone_moe": Recipe(
        "ExaoneMoeForCausalLM", qk_norm="head", window="pattern", mixture=_SHARED,
        pattern_keys=("sliding_window_pattern",),
    ),
    "cohere2_moe": Recipe(
        "Cohere2MoeForCausalLM", bias="attention_bias", norms=1, tied=True, window="pattern",
        mixture=Mixed(width_keys=("intermediate_size",), shared_keys=("num_shared_experts",)),
        no_effect=("shared_expert_combination_strategy", "expert_selection_fn",
                   "prefix_dense_sliding_window_pattern"),
        pattern_keys=("sliding_window_pattern",),
    ),
    "granitemoe_swa": Recipe(
        "GraniteMoeSWAForCausalLM", bias="attention_bias", head_vectors=1, window="types",
        slides=lambda i, _: i % 4 != 0,
        mixture=Mixed(width_keys=("intermediate_size",), shared_width_keys=("shared_intermediate_size",)),
        no_effect=("layer_rope_theta",),
    ),
    "kolibri1": Recipe(
        "Kolibri1ForCausalLM", qk_norm="head", norms=4, window="types", head_dim=128,
        slides=lambda i, _: (i + 1) % 5 != 0,
        mixture=Mixed(router_bias=True, shared_width_keys=("shared_expert_intermediate_size",)),
    ),
    "mellum": Recipe(
        "MellumForCausalLM", bias="attention_bias", qk_norm="head", window="types", mixture=Mixed(),
        slides=lambda _, __: False,
    ),
    "solar_open": Recipe("SolarOpenForCausalLM", bias="attention_bias", mixture=_SHARED),
    "flex_olmo": Recipe(
        "FlexOlmoForCausalLM", bias="attention_bias", qk_norm="full",
        mixture=Mixed(width_keys=("intermediate_size",)),
    ),
    "flint": Recipe(
        "FlintForCausalLM", bias="attention_bias", qk_norm="head", head_vectors=1, window="types",
        slides=lambda i, n: i >= 2 and i % 4 != 1 and i != n - 1,
        mixture=Mixed(shared_width_keys=("shared_expert_intermediate_size",), dense_default=2),
    ),
}  # fmt: skip

FAMILY = recipe_family("mixtures", _RECIPES)
