"""Deleting or corrupting any key gives an error or a new note, never a silent change of the model.

Exempt, because the mutated file is another legal config that no reader can tell from a true one:

- another number within the key's range (``hidden_size`` 4096 -> 5120), unless it contradicts another
  key (list lengths, divisibility, groups), and 0 where 0 means "none" (``ZERO_IS_LEGAL``);
- the other truth value of a boolean key;
- another known value of a string key (``topk_method``, ``quant_method``, a known ``model_type``);
- without code of its own (``auto_map``), which engines are told of and nothing is counted by.

Keys without effect on any count (``read_log.py``, and what a family ignores) change nothing, which the
same comparison proves.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costmodel.models.load import read_model
from costmodel.models.registry import known_families
from costmodel.models.spec import ModelSpec
from tests.costmodel.models.architectures import decoders
from topology.catalogue import catalogue_names, data_dir
from topology.errors import InstanceError

ZERO_IS_LEGAL = {
    "n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "first_k_dense_replace",
    "num_nextn_predict_layers", "mtp_num_hidden_layers", "moe_layer_start_index", "num_hash_layers",
    "moe_layer_end_index", "attn_layer_offset", "expert_layer_offset", "shared_intermediate_size",
    "share_expert_dim", "num_local_experts",
}  # fmt: skip
DELETE = object()
QUICK = {"delete": DELETE, "text": "banana"}
THOROUGH = {
    **QUICK, "negative": -3, "null": None, "fraction": 2.5, "nan": float("nan"), "list": [1, "x"],
    "object": {"x": 1}, "huge": 10**30, "zero": 0, "true": True, "rename": DELETE,
}  # fmt: skip


#: Architectures outside the catalogue.
OTHER = {
    name: entry["config"]
    for file in ("known_totals.json", "other_configs.json")
    for name, entry in json.loads((Path(__file__).with_name(file)).read_text()).items()
}


#: One class of transformers for each family that has no other example.
OTHER |= {
    f"class-{kind}": decoders()[kind]["variants"]["default"]["config"]
    for kind in (
        "axk2", "bamba", "dots3_note_text", "gemma3n_text", "git", "gpt_neo", "inkling2_text", "jetmoe",
        "lfm3", "mamba2", "olmo_hybrid", "xlstm", "recurrent_gemma", "modernbert-decoder", "zamba2",
        "zaya",
    )
}  # fmt: skip


def _config(name: str) -> dict[str, Any]:
    if name in OTHER:
        return copy.deepcopy(OTHER[name])
    data: dict[str, Any] = json.loads((data_dir("models") / f"{name}.json").read_text())
    return data


def _objects(data: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for key, value in data.items():
        yield data, key
        if isinstance(value, dict):
            yield from _objects(value)


def _read(data: dict[str, Any]) -> ModelSpec | None:
    """The model, or ``None`` where the file is refused. Any other exception is a failure."""
    try:
        return read_model(data, "mutant", "config.json")
    except InstanceError:
        return None


def _legal(key: str, old: object, new: object) -> bool:
    if new is True:
        return isinstance(old, bool)
    return new == 0 and not isinstance(new, bool) and key in ZERO_IS_LEGAL


def _counted(model: ModelSpec) -> ModelSpec:
    """The model without what is said of it beside its counts."""
    return replace(model, notes=(), readings=(), own_code=False)


def _silent(name: str, mutations: dict[str, Any]) -> list[str]:
    data = _config(name)
    base = _read(data)
    assert base is not None
    plain = _counted(base)
    found = []
    for owner, key in list(_objects(data)):
        original = list(owner.items())
        old = owner[key]
        for label, new in mutations.items():
            if new is not DELETE and _legal(key, old, new):
                continue
            del owner[key]
            if label == "rename":
                owner[f"{key}_x"] = old
            elif new is not DELETE:
                owner[key] = new
            mutant = _read(data)
            owner.clear()
            owner.update(original)
            if mutant is None or set(mutant.notes) - set(base.notes):
                continue
            if _counted(mutant) != plain:
                found.append(f"{key}: {label}")
    return found


def _one_per_family() -> list[str]:
    first: dict[str, str] = {}
    for name in [*catalogue_names("models", (".json",)), *OTHER]:
        first.setdefault(read_model(_config(name), name, name).family, name)
    return sorted({*first.values(), "gpt-oss-20b", "minimax-m2.7", "qwen3.5-27b"})


@pytest.mark.parametrize("name", _one_per_family())
def test_no_key_is_silent(name: str) -> None:
    assert _silent(name, QUICK) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*catalogue_names("models", (".json",)), *OTHER])
def test_no_key_of_any_model_is_silent(name: str) -> None:
    assert _silent(name, THOROUGH) == []


def test_every_family_is_mutated() -> None:
    read = {read_model(_config(name), name, name).family for name in _one_per_family()}
    assert read >= {family.name for family in known_families()}
