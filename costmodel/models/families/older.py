"""Dense decoders of 2018 to 2023: learned or no positions, layer norms, FFNs without a gate."""

from __future__ import annotations

from costmodel.models.parts.recipe import Recipe, recipe_family

_GPT2 = Recipe(
    "GPT2LMHeadModel", bias=True, mlp_bias=True, gated=False, norm_bias=True, heads="all", tied=True,
    width_keys=("n_inner",), width_times=4, positions=("n_positions", "max_position_embeddings"),
    no_effect=("summary_type", "summary_use_proj", "summary_proj_to_labels", "n_ctx",
               "summary_first_dropout", "summary_activation", "scale_attn_weights",
               "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"),
)  # fmt: skip

_RECIPES = {
    "biogpt": Recipe(
        "BioGptForCausalLM", bias=True, mlp_bias=True, gated=False, norm_bias=True, heads="all",
        tied=True, positions=("max_position_embeddings",), more_positions=2,
        no_effect=("scale_embedding", "layerdrop"),
    ),
    "bloom": Recipe(
        "BloomForCausalLM", bias=True, mlp_bias=True, gated=False, norm_bias=True, heads="all",
        tied=True, width_keys=("n_inner",), width_times=4, embedding_norms=2,
        no_effect=("apply_residual_connection_post_layernorm", "slow_but_exact", "seq_length",
                   "bias_dropout_fusion", "masked_softmax_fusion", "attention_softmax_in_fp32",
                   "offset_alibi", "unk_token_id", "skip_bias_add", "skip_bias_add_qkv"),
    ),
    "codegen": Recipe(
        "CodeGenForCausalLM", mlp_bias=True, gated=False, norms=1, norm_bias=True, heads="all",
        head_bias=True, width_keys=("n_inner",), width_times=4, no_effect=("n_ctx",),
    ),
    "ctrl": Recipe(
        "CTRLLMHeadModel", bias=True, mlp_bias=True, gated=False, norm_bias=True, heads="all",
        tied=True, head_bias=True, width_keys=("dff",),
    ),
    "gpt2": _GPT2,
    "gpt-sw3": _GPT2,
    "gpt_neox_japanese": Recipe(
        "GPTNeoXJapaneseForCausalLM", gated=False, norm_bias=True, heads="all", tied=True,
        width_keys=("intermediate_size",), width_times=4,
        no_effect=("intermediate_multiple_size", "is_decoder"),
    ),
    "gptj": Recipe(
        "GPTJForCausalLM", mlp_bias=True, gated=False, norms=1, norm_bias=True, heads="all",
        head_bias=True, width_keys=("n_inner",), width_times=4,
    ),
    "openai-gpt": Recipe(
        "OpenAIGPTLMHeadModel", bias=True, mlp_bias=True, gated=False, norm_bias=True, heads="all",
        tied=True, width_keys=("n_inner",), width_times=4, positions=("n_positions",),
        final_norm=False,
        no_effect=("afn", "summary_type", "summary_use_proj", "summary_proj_to_labels",
                   "summary_first_dropout", "summary_activation", "predict_special_tokens", "n_ctx"),
    ),
    "persimmon": Recipe(
        "PersimmonForCausalLM", bias=True, mlp_bias=True, gated=False, norm_bias=True, heads="all",
        qk_norm="head+bias", no_effect=("qk_layernorm",),
    ),
    "phi": Recipe(
        "PhiForCausalLM", bias=True, mlp_bias=True, gated=False, norms=1, norm_bias=True,
        head_bias=True, no_effect=("qk_layernorm",),
    ),
    "xglm": Recipe(
        "XGLMForCausalLM", bias=True, mlp_bias=True, gated=False, norm_bias=True, heads="all",
        tied=True, width_keys=("ffn_dim",), no_effect=("scale_embedding", "layerdrop"),
    ),
}  # fmt: skip

FAMILY = recipe_family("older", _RECIPES)
