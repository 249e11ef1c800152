"""Counts what the classes of ``transformers`` hold: parameters by module, cache by length. No Rackfit.

Runs in an environment of its own (transformers, torch for CPU). Every class is built on torch's meta
device, so no memory is needed: from its defaults, from a config with other widths and counts, and
from one whose optional keys are missing. Writes one JSON file with the configs and the counts.

    python -m benchmarks.architectures.count OUT.json [text | multimodal | model_type ...]
"""

from __future__ import annotations

import contextlib
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

from benchmarks.architectures.mutated import mutations

#: Lengths at which a class's cache is measured.
LENGTHS = (24, 40)
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
    "qwen4_exp": {"text_config": {
        "indexer_n_heads": 16, "indexer_kv_heads": 1, "indexer_head_dim": 256,
        "indexer_budget": 2048, "indexer_compress_ratio": 4,
    }},
    "qwen4_exp_text": {
        "indexer_n_heads": 16, "indexer_kv_heads": 1, "indexer_head_dim": 256,
        "indexer_budget": 2048, "indexer_compress_ratio": 4, "ple_embed_dim": 256,
    },
}  # fmt: skip


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


def default_config(kind: str, name: str) -> dict[str, Any]:
    """What a configuration class saves when nothing is asked for; of its text part where the class is that's."""
    config = CONFIG_MAPPING[kind](**NEEDED.get(kind, {}))
    own, text = getattr(transformers, name).config_class, config.get_text_config()
    if not isinstance(config, own) and isinstance(text, own):
        config = text
    data = plain(config.to_dict())
    base = transformers.PretrainedConfig().to_dict().get(TIED)
    if base is not None and data.get(TIED) == base and any(key in data for key in TEXT_PARTS):
        del data[TIED]  # a file leaves out what the base class has, and the text part decides
    return data


def build(kind: str, name: str, data: dict[str, Any]) -> tuple[Any, Any]:
    """Config and model of a class on the meta device."""
    built = getattr(transformers, name)
    cls = built.config_class if data.get("model_type") != kind else CONFIG_MAPPING[kind]
    config = cls.from_dict({key: value for key, value in data.items() if key != "architectures"})
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


def autocast(device_type: str, *args: Any, **options: Any) -> Any:
    """``torch.autocast``, which knows no meta device; classes of version 4 turn it off there all the same."""
    if device_type == "meta":
        return contextlib.nullcontext()
    return torch.amp.autocast(device_type, *args, **options)


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
    torch.autocast = autocast  # type: ignore[misc,assignment]
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
                base = default_config(kind, name)
            except Exception as error:
                result["classes"][kind] = {
                    "group": group, "class": name, "variants": {"default": {"error": repr(error)[:200]}}
                }  # fmt: skip
                continue
            mutated = {"default": [base]}
            if group == "text":
                mutated |= mutations(base, set(NEEDED.get(kind, {})), random.Random(kind))
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
