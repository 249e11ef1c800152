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
    "gpt_bigcode": Recipe(
        "GPTBigCodeForCausalLM", bias=True, mlp_bias=True, gated=False, norm_bias=True, heads="multi_query",
        tied=True, width_keys=("n_inner",), width_times=4,
        positions=("n_positions", "max_position_embeddings"),
        no_effect=("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32",
                   "scale_attn_weights", "inference_runner", "validate_runner_input",
                   "pre_allocate_kv_cache", "max_sequence_length", "max_batch_size", "pad_key_length",
                   "summary_type", "summary_use_proj", "summary_proj_to_labels",
                   "summary_activation", "summary_first_dropout", "n_ctx"),
    ),
    "gpt2": _GPT2,
    "gpt-sw3": _GPT2,
    "gpt_neox_japanese": Recipe(
        "GPTNeoXJapaneseForCausalLM", gated=False, norm_bias=True, heads="all", tied=True,
        width_keys=("intermediate_size",), width_times=4,
        times_keys=("intermediate_multiple_size",), no_effect=("is_decoder",),
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
    "mpt": Recipe(
        "MptForCausalLM", gated=False, heads="all", tied=True, width_keys=("n_inner",), width_times=4,
        times_keys=("expansion_ratio",), fixed=(("no_bias", True),),
        no_effect=("attn_config", "init_device", "embedding_fraction", "norm_type",
                   "learned_pos_emb", "verbose", "init_config",
                   "attn_impl", "alibi"),
    ),
    "opt": Recipe(
        "OPTForCausalLM", bias="enable_bias", bias_default=True, mlp_bias="enable_bias", gated=False,
        norm_bias=True, heads="all", tied=True, width_keys=("ffn_dim",),
        positions=("max_position_embeddings",), more_positions=2,
        final_norm="do_layer_norm_before", table_width_keys=("word_embed_proj_dim",),
        fixed=(("_remove_final_layer_norm", False), ("layer_norm_elementwise_affine", True)),
        no_effect=("layerdrop", "init_std"),
    ),
    "xglm": Recipe(
        "XGLMForCausalLM", bias=True, mlp_bias=True, gated=False, norm_bias=True, heads="all",
        tied=True, width_keys=("ffn_dim",), no_effect=("scale_embedding", "layerdrop", "init_std"),
    ),
}  # fmt: skip

FAMILY = recipe_family("older", _RECIPES)
