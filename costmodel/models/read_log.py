"""What was read of a config, assumed and found wrong; keys that have no effect; values and keys in words for messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from costmodel.models.spec import Reading
from topology.errors import InstanceError, Problem

#: Whole names of keys without effect. Training, generation, numerics, tokens, positions: nothing that has a size.
_NAMES = frozenset(
    """
    _name_or_path _commit_hash _attn_implementation_autoset _attn_implementation add_bos_token
    add_cross_attention add_eos_token architectures attention_dropout attn_dropout
    attn_logit_softcapping attn_pdrop auto_map aux_loss_alpha bad_words_ids begin_suppress_tokens
    chunk_size chunk_size_feed_forward clip_qkv cross_attention_hidden_size decoder_start_token_id
    diversity_penalty do_sample dropout early_stopping emb_pdrop embd_pdrop embedding_dropout
    embedding_multiplier encoder_no_repeat_ngram_size ep_size exponential_decay_length_penalty
    final_logit_softcapping finetuning_task for_llm_compressor forced_bos_token_id
    forced_eos_token_id hidden_dropout hidden_dropout_prob id2label ignore_index initializer_factor
    initializer_range initializer_cutoff_factor is_decoder is_encoder_decoder label2id
    layer_norm_eps layer_norm_epsilon layernorm_epsilon length_penalty logit_scale logits_scaling
    max_length min_length max_window_layers mlp_dropout moe_jitter_eps moe_loss_weight
    hidden_act hidden_activation activation_function mlp_hidden_act mamba_hidden_act
    moe_router_activation_func name no_repeat_ngram_size norm_eps norm_epsilon norm_topk_prob
    num_beam_groups num_beams num_return_sequences output_attentions output_dropout
    output_hidden_states output_router_logits output_scores partial_rotary_factor prefix
    pretraining_tp problem_type pruned_heads query_pre_attn_scalar remove_invalid_values
    repetition_penalty resid_pdrop residual_dropout residual_multiplier attention_multiplier
    residual_in_fp32 rescale_prenorm_residual return_dict return_dict_in_generate rms_norm_eps
    rms_eps rope_interleave rope_local_base_freq rope_parameters rope_pct rope_ratio rope_scaling
    rope_theta rope_type rotary_base rotary_dim rotary_emb_base rotary_pct rotary_percent
    routed_scaling_factor router_aux_loss_coef router_jitter_noise router_scaling_factor
    router_z_loss_coef scale_depth scale_emb score_function score_func scoring_func seq_aux
    sep_token_id suppress_tokens swiglu_alpha swiglu_limit task_specific_params temperature
    tf_legacy_loss tie_encoder_decoder tokenizer_class tokenizer_model_type top_k top_p torchscript
    transformers_version typical_p unsloth_fixed unsloth_version use_bfloat16 use_cache
    use_flash_attn use_mamba_kernels use_scaled_rope use_sliding_window_mask use_rotary_pos_emb
    attn_scale attn_temperature_tuning floor_scale cache_implementation max_model_len
    spatial_merge_size projector_hidden_act vision_feature_layer vision_feature_select_strategy
    multimodal_projector_bias image_seq_length full_attn_mod interpolate_factor
    original_max_position_embeddings embedding_multiplier_scale
    output_multiplier_scale router_logit_softcapping attn_temperature_len rope_is_neox_style
    calc_logits_for_entire_prompt talker_config code2wav_config generation_config
    z_loss_coefficient time_step_floor time_step_limit time_step_max time_step_min
    num_logits_to_keep moe_router_scaling_factor moe_router_dtype index_topk_pattern
    indexer_rope_interleave use_unified_vision_chunk dim_model_base hf_version
    image_token_index boi_token_index eoi_token_index image_token_index mm_tokens_per_image
    video_placeholder moe_aux_loss_coeff moe_router_topk_scaling_factor attention_scaling
    """.split()  # noqa: SIM905
)

#: Endings of names that are always a token's number or a file's note.
_ENDINGS = ("_token_id", "_token_ids", "_token_index", "_dropout", "_pdrop", "_loss_coef", "_eps")


def shown(value: object) -> str:
    """A short printable form of an untrusted value, for messages."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, dict | list):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass
class ReadLog:
    """What was read, assumed and found wrong in one file."""

    readings: dict[str, Reading] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def read(self, key: str, value: str, source: str) -> None:
        """Remember one value that was used, the first time it is."""
        self.readings.setdefault(key, Reading(key, value, source))

    def note(self, text: str) -> None:
        """Add a note once."""
        if text not in self.notes:
            self.notes.append(text)

    def so_far(self) -> Callable[[], bool]:
        """A question to ask after some keys were read: whether none of them was wrong.

        A key that is wrong has a stand-in, which must not be said to contradict another.
        """
        before = len(self.problems)
        return lambda: len(self.problems) == before

    def stop_if_wrong(self) -> None:
        """Raise ``InstanceError`` with every problem found so far, if there is one."""
        if self.problems:
            raise InstanceError(dict.fromkeys(self.problems))


def counted(values: Sequence[Any]) -> str:
    """A list in few words: how often each value occurs, or only its length."""
    kinds = Counter(str(value) for value in values if isinstance(value, int | str))
    if len(kinds) > 4 or kinds.total() != len(values):
        return f"a list of {len(values)}"
    return ", ".join(f"{num} x {value[:24]}" for value, num in kinds.items())


def missing(names: Sequence[str]) -> str:
    """That a key is missing, and its other names."""
    return "is missing" + (f" (also known as {', '.join(names[1:])})" if len(names) > 1 else "")


def is_inert(key: str) -> bool:
    """Whether a key is known to change no count of parameters, bytes or FLOPs."""
    return key in _NAMES or key.endswith(_ENDINGS)
