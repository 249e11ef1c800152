"""What is refused, what is noted, and what an unknown architecture gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costmodel.models import load_model
from costmodel.models.files import MAX_CONFIG_BYTES
from costmodel.models.load import read_model
from costmodel.models.spec import Attention, ModelSpec, MoE
from costmodel.models.summary import summarise
from topology.catalogue import data_dir
from topology.errors import InstanceError

UNKNOWN: dict[str, Any] = {
    "architectures": ["BrandNewForCausalLM"], "model_type": "brand_new", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0, "hidden_act": "silu", "bos_token_id": 1,
}  # fmt: skip


def _config(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((data_dir("models") / f"{name}.json").read_text())
    return data


def _read(config: dict[str, Any]) -> ModelSpec:
    return read_model(config, "model", "config.json")


def _problems(config: dict[str, Any]) -> str:
    with pytest.raises(InstanceError) as caught:
        _read(config)
    return str(caught.value)


def test_unknown_architecture_with_common_keys_is_read_with_a_warning() -> None:
    spec = _read(UNKNOWN)
    known = summarise(load_model("llama-3.1-8b"))
    assert summarise(spec).total_params == known.total_params
    assert summarise(spec).kv_bytes_per_token == known.kv_bytes_per_token
    assert any("architecture is not known" in note for note in spec.notes)
    assert any("attention_bias = False" in note for note in spec.notes)


def test_unknown_architecture_with_experts() -> None:
    config = {
        **UNKNOWN, "n_routed_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 1408,
        "n_shared_experts": 2, "first_k_dense_replace": 1,
    }  # fmt: skip
    summary = summarise(_read(config))
    assert (summary.moe_layers, summary.routed_experts, summary.shared_experts) == (31, 64, 2)


def test_unknown_architecture_names_keys_it_does_not_understand() -> None:
    text = _problems({**UNKNOWN, "num_mystery_heads": 4, "mystery_pattern": [1, 0], "scale_x": 0.5})
    assert "num_mystery_heads" in text
    assert "mystery_pattern" in text
    assert "scale_x" not in text


def test_unknown_architecture_names_all_missing_keys() -> None:
    config = {k: v for k, v in UNKNOWN.items() if k not in ("hidden_size", "vocab_size")}
    text = _problems(config)
    assert "hidden_size: is missing" in text
    assert "vocab_size: is missing" in text


def test_unknown_window_without_its_layers_is_not_guessed() -> None:
    assert "which layers slide" in _problems({**UNKNOWN, "sliding_window": 4096})


def test_encoders_are_refused() -> None:
    text = _problems({**UNKNOWN, "architectures": ["BertForMaskedLM"]})
    assert "BertForMaskedLM" in text
    assert "is an encoder:" in _problems({**UNKNOWN, "model_type": "bert"})
    for kind in ("t5", "whisper"):
        assert "encoder-decoder" in _problems({**UNKNOWN, "model_type": kind})
    assert "encoder-decoder" in _problems({**UNKNOWN, "is_encoder_decoder": True})
    assert "cross-attention" in _problems({**UNKNOWN, "cross_attention_layers": [3, 8]})


@pytest.mark.parametrize(
    ("model", "change", "message"),
    [
        ("qwen3-8b", {"architectures": ["Qwen3ForSequenceClassification"]},
         "architectures: 'Qwen3ForSequenceClassification' is a classifier or reward model, no text generator"),
        ("qwen3-8b", {"architectures": ["NewForTokenClassification"]}, "is a classifier of tokens, no text generator"),
        ("qwen2.5-72b", {"architectures": ["Qwen2ForRewardModel"]}, "is a reward model, no text generator"),
        ("deepseek-v3", {"architectures": ["DeepseekV3ForQuestionAnswering"]}, "no text generator"),
        ("llama-3.1-8b", {"architectures": ["LlamaBidirectionalModel"]}, "is an embedding model, no text generator"),
        ("gemma-3-27b", {"architectures": ["Gemma3ForSequenceClassification"]}, "no text generator"),
        ("llama-3.1-8b", {"use_bidirectional_attention": True},
         "use_bidirectional_attention: true: attention in both directions makes an embedding model"),
        ("llama-3.1-8b", {"architectures": ["LlamaForCausalLMEagle3"]},
         "drafts tokens for another model and writes no text alone: name the model, and this as its draft"),
        ("qwen3-8b", {"architectures": ["DFlashDraftModel"]}, "'DFlashDraftModel' drafts tokens for another model"),
    ],
)  # fmt: skip
def test_classes_that_write_no_text_are_refused(
    model: str, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InstanceError, match=message):
        _read(_config(model) | change)


@pytest.mark.parametrize("name", ["Qwen3Model", "Qwen3TextModel"])
def test_bare_class_names_are_read_with_a_warning(name: str) -> None:
    (warning,) = _read(_config("qwen3-8b") | {"architectures": [name]}).warnings
    assert f"architectures names '{name}', which has no language-model head" in warning


def test_class_names_nobody_lists_are_read_by_their_model_type() -> None:
    plain = _read(_config("qwen3-8b"))
    for names in (["MyOwnChatModel"], ["QWenLMHeadModel"], ["Qwen3VLForConditionalGeneration"], ["Eagle2ForConditionalGeneration"],
                  ["Qwen3ForCausalLM", "Qwen3ForSequenceClassification"], [], None):  # fmt: skip
        found = _read(_config("qwen3-8b") | {"architectures": names})
        assert (summarise(found), found.warnings) == (summarise(plain), ())
    assert not _read(_config("gemma-3-27b") | {"use_bidirectional_attention": False}).warnings


def test_known_architecture_notes_keys_it_does_not_understand() -> None:
    spec = _read({**_config("llama-3.1-8b"), "mystery": 3})
    assert any(note.startswith("warning: mystery = 3") for note in spec.notes)


def test_model_type_and_architecture_must_agree() -> None:
    assert "contradicts" in _problems({**_config("llama-3.1-8b"), "model_type": "mixtral"})


@pytest.mark.parametrize(
    ("model", "change", "places"),
    [
        ("mixtral-8x7b", {"num_local_experts": [64, 64]}, {"num_local_experts"}),
        ("deepseek-v3", {"n_routed_experts": None}, {"n_routed_experts"}),
        ("deepseek-v3", {"n_routed_experts": "many", "topk_group": -1}, {"n_routed_experts", "topk_group"}),
        ("llama-3.1-8b", {"num_attention_heads": "32"}, {"num_attention_heads"}),
        ("llama-3.1-8b", {"hidden_size": None}, {"hidden_size"}),
    ],
)  # fmt: skip
def test_a_wrong_key_is_not_said_to_contradict_others(
    model: str, change: dict[str, Any], places: set[str]
) -> None:
    with pytest.raises(InstanceError) as found:
        _read(_config(model) | change)
    assert {problem.place.rpartition(" ")[2] for problem in found.value.problems} == places


def test_heads_of_mamba_2_follow_from_its_channels() -> None:
    config = {"model_type": "mamba2", "hidden_size": 2048, "num_hidden_layers": 48, "vocab_size": 32000, "state_size": 128,
              "head_dim": 64, "n_groups": 1, "expand": 2, "conv_kernel": 4, "tie_word_embeddings": False}  # fmt: skip
    assert summarise(_read(config)) == summarise(_read(config | {"num_heads": 64}))
    with pytest.raises(InstanceError, match="num_heads: 63 heads of 64 are not 2 times 2048"):
        _read(config | {"num_heads": 63})


def test_aliases_must_agree() -> None:
    assert "which means the same" in _problems({**_config("gpt-oss-20b"), "experts_per_token": 5})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("llama-3.1-8b", {"num_key_value_heads": 7}, "does not divide the 32 query heads"),
        ("deepseek-v3", {"num_experts_per_tok": 300}, "only 256 experts"),
        ("deepseek-v3", {"n_group": 7}, "do not divide 256 experts"),
        ("deepseek-v3", {"topk_group": 9}, "there are 8 groups"),
        ("gpt-oss-20b", {"layer_types": ["full_attention"]}, "1 entries for 24 layers"),
        ("glm-5.2", {"first_k_dense_replace": 4}, "contradicts first_k_dense_replace"),
        ("qwen3-next-80b-a3b", {"layer_types": ["full_attention"] * 48}, "full_attention_interval"),
        ("nemotron-h-56b", {"num_hidden_layers": 117}, "118 blocks are listed"),
        ("kimi-linear-48b-a3b", {"num_hidden_layers": 26}, "is not from 1 to 26"),
        ("jamba-v0.1", {"attn_layer_offset": 8}, "below the period"),
        ("hunyuan-a13b", {"num_hidden_layers": 33}, "32 entries for 33 layers"),
        ("llama-3.1-8b", {"num_hidden_layers": 10**6}, "must be from 1 to"),
        ("llama-3.1-8b", {"hidden_size": 131072, "intermediate_size": 4194304, "num_hidden_layers": 128}, "parameters are more"),
        ("llama-3.1-8b", {"hidden_size": float("nan")}, "got nan"),
        ("llama-3.1-8b", {"hidden_size": "4096"}, "got '4096'"),
        ("llama-3.1-8b", {"hidden_size": True}, "got True"),
        ("llama-3.1-8b", {"hidden_size": 10**400}, "a number of"),
        ("llama-3.1-8b", {"torch_dtype": "float7"}, "torch_dtype"),
        ("deepseek-v3", {"quantization_config": {"quant_method": "magic"}}, "quant_method"),
    ],
)  # fmt: skip
def test_contradictions_and_absurd_values_are_named(
    name: str, change: dict[str, Any], message: str
) -> None:
    assert message in _problems({**_config(name), **change})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"[]", "expected a JSON object"),
        (b"null", "expected a JSON object"),
        (b"{} {}", "not JSON"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b'{"a": 1, "a": 2}', "given twice"),
        (b'{"a":' * 150_000 + b"1" + b"}" * 150_000, "nested too deep"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "nested deeper"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not usable JSON"),
        (b" " * (MAX_CONFIG_BYTES + 1), "bytes; at most"),
        (b"{}", "none is named, and model_type None is not known"),
    ],
)
def test_hostile_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InstanceError, match=message):
        load_model(path)


@pytest.mark.parametrize("name", ["no-such-model", "no/such/file.json", "\0", "x" * 5000, "/", ""])
def test_unusable_names(name: str) -> None:
    with pytest.raises(InstanceError):
        load_model(name)


def test_a_folder_and_a_path_are_read(tmp_path: Path) -> None:
    text = (data_dir("models") / "qwen3-8b.json").read_text()
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(text)
    for place in (folder, folder / "config.json"):
        spec = load_model(place)
        assert spec.name == "my-model"
        assert summarise(spec) == summarise(load_model("qwen3-8b"))


def test_quantisation_file_beside_the_config_is_found(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((data_dir("models") / "qwen3-8b.json").read_text())
    plain = summarise(load_model(tmp_path)).weight_bytes
    (tmp_path / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}})
    )
    assert summarise(load_model(tmp_path)).weight_bytes < 0.7 * plain


def test_every_number_has_a_source() -> None:
    sources = {item.key: item.source for item in load_model("glm-4.5").readings}
    assert sources["n_routed_experts"] == "config"
    assert sources["moe_layer_freq"] == "every layer"


def test_what_the_cost_model_reads_of_latent_attention() -> None:
    part = load_model("deepseek-v3").layers[10].sublayers[0]
    assert isinstance(part, Attention)
    assert (part.decode_qk_dim, part.decode_v_dim) == (576, 512)
    assert (part.prefill_qk_dim, part.prefill_v_dim) == (192, 128)
    assert (part.kv_heads, part.kv_elements) == (1, 576)
    assert {w.name: w.shard for w in part.weights}["key/value down"] == "replicated"


def test_what_the_cost_model_reads_of_compressed_attention() -> None:
    part = load_model("deepseek-v4-flash").layers[2].sublayers[0]
    assert isinstance(part, Attention)
    assert part.kind == "csa"
    assert part.stored_tokens(1024) == 1024 / 4 + 128
    assert part.read_tokens(1024 * 1024) == 512 + 128


def test_groups_of_experts_are_kept() -> None:
    part = load_model("deepseek-v3").layers[10].sublayers[1]
    assert isinstance(part, MoE)
    assert (part.num_groups, part.top_groups) == (8, 4)


def test_image_captioner_that_shares_a_model_type_is_not_grok() -> None:
    config = {**UNKNOWN, "model_type": "git", "architectures": ["GitForCausalLM"]}
    assert _read(config).family == "git"
    assert load_model("grok-2").family == "grok"


def test_odd_widths_are_noted() -> None:
    spec = _read({**_config("llama-3.1-8b"), "intermediate_size": 14337})
    assert any("14337 is not a multiple of 8" in note for note in spec.notes)
    for name in ("gpt-oss-120b", "glm-4.5", "deepseek-v3", "gemma-3-27b"):
        assert not any("is not a multiple" in note for note in load_model(name).notes)
