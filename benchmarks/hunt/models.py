"""A random model: one of the catalogue, or a small one made up in a catalogue model's family."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from costmodel.models import load_model
from costmodel.models.load import read_model
from costmodel.models.spec import MoE
from costmodel.models.summary import summarise
from topology.catalogue import catalogue_names, data_dir

#: families of made-up models: the catalogue model whose config is cut down
FAMILIES = ("llama-3.1-8b", "mixtral-8x7b", "deepseek-v2-lite", "qwen3-30b-a3b", "gpt-oss-20b")
#: experts that made-up mixtures have: even, odd and prime numbers
EXPERTS = (4, 5, 6, 8, 12, 16, 24, 60)
#: catalogue models above this many bytes are drawn seldom: their questions take long
_LARGE_BYTES = 250e9


@dataclass(frozen=True)
class DrawnModel:
    """A catalogue name, or a config of its own, with what the rest of a question depends on."""

    name: str
    config: dict[str, Any] | None
    weight_bytes: float
    kv_bytes_per_token: float
    active_params: float
    max_context: int | None
    drafts: bool
    moe: bool


def draw_model(draw: Random) -> DrawnModel:
    """A random model; half of them are made up and small."""
    if draw.random() < 0.5:
        return _made_up(draw)
    names = catalogue_names("models", (".json",))
    while True:
        found = _of_catalogue(draw.choice(names))
        if found.weight_bytes < _LARGE_BYTES or draw.random() < 0.1:
            return found


def described(name: str, config: dict[str, Any] | None) -> DrawnModel:
    """A catalogue model, or one of its own config."""
    spec = load_model(name) if config is None else read_model(config, name, name)
    figures = summarise(spec)
    return DrawnModel(
        name=name,
        config=config,
        weight_bytes=figures.weight_bytes,
        kv_bytes_per_token=figures.kv_bytes_per_token,
        active_params=figures.active_params,
        max_context=spec.max_context,
        drafts=spec.mtp is not None,
        moe=any(isinstance(part, MoE) for layer in spec.layers for part in layer.sublayers),
    )


@lru_cache(maxsize=128)
def _of_catalogue(name: str) -> DrawnModel:
    return described(name, None)


def _made_up(draw: Random) -> DrawnModel:
    family = draw.choice(FAMILIES)
    path = data_dir("models") / f"{family}.json"
    config: dict[str, Any] = json.loads(path.read_text())
    layers = draw.randint(2, 12)
    config["num_hidden_layers"] = layers
    if "layer_types" in config:
        config["layer_types"] = config["layer_types"][:layers]
    experts = draw.choice(EXPERTS)
    for key in ("num_local_experts", "num_experts", "n_routed_experts"):
        if key in config:
            config[key] = experts
    active = draw.randint(1, min(experts, 6))
    for key in ("num_experts_per_tok", "experts_per_token"):
        if key in config:
            config[key] = active
    if "num_key_value_heads" in config and family != "deepseek-v2-lite":
        heads = int(config["num_attention_heads"])
        config["num_key_value_heads"] = draw.choice(
            [count for count in (1, 2, 4, 8, 16) if heads % count == 0]
        )
    name = f"{family}-cut"
    return described(name, config)
