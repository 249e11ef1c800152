"""Counts what the classes of ``transformers`` hold: parameters by module, cache by length. No Rackfit.

Runs in an environment of its own (transformers, torch for CPU). Every class is built on torch's meta
device, so no memory is needed: from its defaults, from a config with other widths and counts, and
from one whose optional keys are missing. Writes one JSON file with the configs and the counts.

    python count.py OUT.json [text | multimodal | model_type ...]
"""

from __future__ import annotations

import dataclasses
import gc
import inspect
import json
import random
import re
import sys
import warnings
from collections import Counter
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

#: Lengths at which a class's cache is measured.
LENGTHS = (24, 40)
#: Keys that a config file may leave out, because the class knows what then holds.
OPTIONAL = (
    "head_dim", "num_key_value_heads", "tie_word_embeddings", "attention_bias", "mlp_bias",
    "hidden_act", "hidden_activation", "layer_types", "sliding_window", "use_qk_norm", "qk_layernorm",
    "use_bias", "bias", "rope_parameters", "sliding_window_pattern", "no_rope_layers", "mlp_layer_types",
    "mlp_only_layers", "decoder_sparse_step", "conv_bias", "n_inner", "ffn_dim_multiplier",
    "mamba_conv_bias", "mamba_proj_bias", "use_conv_bias", "layers_block_type", "max_position_embeddings",
    "query_pre_attn_scalar", "attn_output_gate", "time_step_rank", "n_shared_experts",
)  # fmt: skip
TIED = "tie_word_embeddings"
#: Configs inside a multimodal one that hold the text model.
TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
#: What some classes cannot be built without, though their own defaults leave it out.
NEEDED: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 16, "moe_topk": 2},
    "lfm2_moe": {"layer_types": (["conv"] * 3 + ["full_attention"]) * 8},
    "ministral": {"head_dim": 128},
    "cohere_compass_text": {
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10000.0}
            for kind in ("full_attention", "sliding_attention")
        }
    },
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "kv_n_heads": 8, "clip_qkv": 8.0}},
    "nemotron": {"num_key_value_heads": 8},
    "qwen4_exp_text": {
        "indexer_n_heads": 16, "indexer_kv_heads": 1, "indexer_head_dim": 64,
        "indexer_budget": 2048, "indexer_compress_ratio": 4, "ple_embed_dim": 256,
    },
}  # fmt: skip
#: Keys that are scaled in the mutated config, by what.
_SCALED = {
    "vocab_size": 1.5, "intermediate_size": 1.25, "ffn_dim": 1.25, "n_inner": 1.25,
    "moe_intermediate_size": 1.5, "shared_expert_intermediate_size": 1.5,
    "shared_intermediate_size": 1.5, "block_ff_dim": 1.25, "ffn_hidden_size": 1.25,
}  # fmt: skip
_HALVED = (
    "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_hidden_layers",
    "n_layer", "n_layers", "num_layers", "num_blocks",
)  # fmt: skip
_DOUBLED = ("hidden_size", "n_embd", "d_model", "num_attention_heads", "n_head", "n_heads",
            "num_key_value_heads", "embedding_dim", "attention_hidden_size", "dim_ff")  # fmt: skip

#: Keys that are halved in the config without optional keys.
_NARROWED = ("hidden_size", "n_embd", "d_model", "embedding_dim", "attention_hidden_size")


def text_classes() -> dict[str, str]:
    """Class of each ``model_type`` that writes text."""
    found = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return {kind: name if isinstance(name, str) else name[0] for kind, name in found.items()}


def multimodal_classes() -> dict[str, str]:
    """Class of each ``model_type`` that reads images, sound or video and writes text."""
    found = dict(modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
    found |= dict(getattr(modeling_auto, "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES", {}))
    plain = text_classes()
    return {
        kind: name if isinstance(name, str) else name[0]
        for kind, name in found.items()
        if kind not in plain or not plain[kind].endswith("CausalLM")
    }


def plain(value: Any) -> Any:
    """A config as JSON can hold it."""
    return json.loads(json.dumps(value, default=str))


def default_config(kind: str) -> dict[str, Any]:
    """What a configuration class saves when nothing is asked for."""
    data = plain(CONFIG_MAPPING[kind](**NEEDED.get(kind, {})).to_dict())
    own = transformers.PretrainedConfig().to_dict().get(TIED)
    if own is not None and data.get(TIED) == own and any(key in data for key in TEXT_PARTS):
        del data[TIED]  # a file leaves out what the base class has, and the text part decides
    return data


def mutations(
    kind: str, data: dict[str, Any], rng: random.Random
) -> dict[str, list[dict[str, Any]]]:
    """Mutated configs by name; of each the boldest first, as a class may refuse some combinations."""
    sizes = scaled(data, _SCALED | dict.fromkeys(_DOUBLED, 2.0))
    flipped = {
        key: not value
        for key, value in data.items()
        if isinstance(value, bool) and (key == "tie_word_embeddings" or "bias" in key)
    }
    flipped = {
        key: value
        for key, value in flipped.items()
        if key == "tie_word_embeddings" or rng.random() < 0.5
    }
    widened = [
        shallower({**sizes, **flipped}),
        shallower({**scaled(data, _SCALED), **flipped}),
        {**scaled(data, {"vocab_size": 1.5}), **flipped},
        scaled(data, {"vocab_size": 1.5}),
    ]
    narrower = scaled(data, dict.fromkeys(_NARROWED, 0.5))
    bare = [
        {
            key: value
            for key, value in given.items()
            if key not in dropped or key in NEEDED.get(kind, {})
        }
        for given in (narrower, data)
        for dropped in (OPTIONAL, ("head_dim", "tie_word_embeddings", "attention_bias"))
    ]
    return {"widened": widened, "bare": bare}


def scaled(data: dict[str, Any], factors: dict[str, float]) -> dict[str, Any]:
    """The config with some of its integers multiplied; multiples of 64 stay so."""
    out = dict(data)
    for key, factor in factors.items():
        old = out.get(key)
        if isinstance(old, int) and not isinstance(old, bool) and old > 1:
            new = int(old * factor)
            out[key] = new // 64 * 64 if old % 64 == 0 and new > 64 else new
    return {key: value for key, value in out.items() if key in data}


def shallower(data: dict[str, Any]) -> dict[str, Any]:
    """Half the layers and half the experts; lists with an entry per layer are cut."""
    out = dict(data)
    names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    layers = next((data[key] for key in names if isinstance(data.get(key), int)), 0)
    for key in _HALVED:
        if isinstance(out.get(key), int) and out[key] > 3:
            out[key] = out[key] // 2
    for key, value in out.items():
        if isinstance(value, list) and len(value) == layers > 3:
            out[key] = value[: layers // 2]
    if isinstance(out.get("num_experts_per_tok"), int):
        experts = [out[key] for key in _HALVED[:4] if isinstance(out.get(key), int)]
        out["num_experts_per_tok"] = min([out["num_experts_per_tok"], *experts])
    return out


def build(kind: str, name: str, data: dict[str, Any]) -> tuple[Any, Any]:
    """Config and model of a class on the meta device."""
    cls, built = CONFIG_MAPPING[kind], getattr(transformers, name)
    config = cls.from_dict({key: value for key, value in data.items() if key != "architectures"})
    if not isinstance(config, built.config_class):
        config = config.get_text_config()  # the class is that of the text part
    for part in {id(c): c for c in (config, config.get_text_config())}.values():
        part._attn_implementation = "eager"
        part._experts_implementation = "batched_mm"
    with torch.device("meta"):
        model = built(config)
    model.tie_weights()
    return config, model.eval()


def parameters(model: Any) -> dict[str, Any]:
    """Parameters by module name without layer numbers; tied ones once, buffers that are saved apart."""
    groups: Counter[str] = Counter()
    for name, value in model.named_parameters():
        groups[re.sub(r"\.\d+(?=\.|$)", ".N", name)] += value.numel()
    saved = model.state_dict(keep_vars=True)
    known = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    buffers: Counter[str] = Counter()
    for name, value in saved.items():
        if name not in known and hasattr(value, "numel"):
            buffers[re.sub(r"\.\d+(?=\.|$)", ".N", name)] += value.numel()
    return {"total": groups.total(), "groups": dict(groups), "buffers": dict(buffers)}


def cached(model: Any, config: Any, length: int) -> dict[str, int]:
    """Elements of the class's own cache after ``length`` tokens, by the names of its tensors."""
    ids = torch.zeros((1, length), dtype=torch.long, device="meta")
    with torch.no_grad(), torch.device("meta"):
        out = model(input_ids=ids, use_cache=True)
    cache = getattr(out, "past_key_values", None)
    cache = getattr(out, "cache_params", None) if cache is None else cache
    cache = getattr(out, "state", None) if cache is None else cache
    if cache is None:
        raise ValueError("no cache in the output")
    found: Counter[str] = Counter()
    seen: set[int] = set()

    def walk(value: Any, name: str, depth: int) -> None:
        if id(value) in seen or depth > 6:
            return
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            if value.is_floating_point():
                found[name] += value.numel()
        elif isinstance(value, dict):
            for key, item in value.items():
                walk(item, key if isinstance(key, str) else name, depth + 1)
        elif isinstance(value, (list, tuple)):
            for item in value:
                walk(item, name, depth + 1)
        elif hasattr(value, "__dict__") and type(value).__module__.startswith("transformers"):
            for key, item in vars(value).items():
                if key not in ("config",):
                    walk(item, key, depth + 1)

    walk(cache, "state", 0)
    return dict(found)


#: Words of errors that matrices of unlike shapes give: the class cannot run such a config.
_UNLIKE = (
    "shapes cannot be multiplied",
    "must have same reduction dim",
    "must match the size",
    "size of tensor",
    "is invalid for input",
)


def measured(model: Any, config: Any) -> dict[str, Any]:
    """Cache at two lengths, or why it cannot be asked; raises where the class cannot run the config."""
    try:
        return {"cache": {str(length): cached(model, config, length) for length in LENGTHS}}
    except Exception as error:
        if any(words in str(error) for words in _UNLIKE):
            raise
        return {"cache_error": f"{type(error).__name__}: {str(error)[:120]}"}


def one(kind: str, name: str, tries: list[dict[str, Any]], *, text_part: bool) -> dict[str, Any]:
    """Counts of one class and the first config that it builds from, or why there is none."""
    entry: dict[str, Any] = {}
    for data in tries:
        entry = {"config": {**data, "architectures": [name]}}
        try:
            config, model = build(kind, name, data)
            counted = parameters(model) | ({} if text_part else measured(model, config))
        except Exception as error:
            entry["error"] = f"{type(error).__name__}: {str(error)[:200]}"
            continue
        entry |= counted
        break
    gc.collect()
    return entry


def raw_defaults(kind: str) -> dict[str, Any]:
    """Scalar defaults of the configuration class's own fields, before the class fills in others."""
    cls = CONFIG_MAPPING[kind]
    if dataclasses.is_dataclass(cls):
        given = {item.name: item.default for item in dataclasses.fields(cls)}
    else:
        given = {item.name: item.default for item in inspect.signature(cls).parameters.values()}
    return {
        name: value
        for name, value in given.items()
        if isinstance(value, (bool, int, float, str, type(None)))
    }


def text_defaults() -> dict[str, Any]:
    """Defaults of every configuration class that has a vocabulary: text models and parts of others."""
    found = {}
    for kind in CONFIG_MAPPING:
        try:
            given = raw_defaults(kind)
        except (ImportError, AttributeError, TypeError):
            continue
        if "vocab_size" in given:
            found[kind] = plain(given)
    return found


def main() -> None:
    """Count every class, or those named."""
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    out, only = sys.argv[1], set(sys.argv[2:])
    result: dict[str, Any] = {
        "transformers": transformers.__version__, "torch": torch.__version__, "classes": {},
        "defaults": text_defaults(),
    }  # fmt: skip
    for group, classes in (("text", text_classes()), ("multimodal", multimodal_classes())):
        for kind, name in classes.items():
            if (only and not only & {kind, group}) or not hasattr(transformers, name):
                continue
            try:
                base = default_config(kind)
            except Exception as error:
                result["classes"][kind] = {
                    "group": group, "class": name, "variants": {"default": {"error": repr(error)[:200]}}
                }  # fmt: skip
                continue
            mutated = {"default": [base]}
            if group == "text":
                mutated |= mutations(kind, base, random.Random(kind))
            variants = {
                label: one(kind, name, tries, text_part=group != "text")
                for label, tries in mutated.items()
            }
            result["classes"][kind] = {"group": group, "class": name, "variants": variants}
            print(kind, {k: v.get("total", v.get("error")) for k, v in variants.items()},
                  [v.get("cache_error") for v in variants.values()], file=sys.stderr, flush=True)  # fmt: skip
            with open(out, "w") as file:
                json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
