"""A mutated list of quantised modules changes no byte in silence: the headline changes, or an error says why."""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from costmodel.models.load import read_model
from costmodel.models.spec import ModelSpec
from costmodel.models.summary import stored_formats, summarise
from topology.errors import InstanceError

#: Configs with their source and licence.
DOCUMENT: dict[str, Any] = json.loads(
    gzip.decompress(Path(__file__).with_name("packaged_configs.json.gz").read_bytes())
)
PACKAGED: dict[str, Any] = DOCUMENT["configs"]
#: Keys under which the settings list modules.
_LISTS = (
    "exclude_modules",
    "ignore",
    "modules_to_not_convert",
    "ignored_layers",
    "quantized_layers",
)


def _lists(document: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    found = []
    for key, value in document.items():
        if key in _LISTS and isinstance(value, list | dict) and value:
            found.append((document, key))
        elif isinstance(value, dict):
            found += _lists(value)
    return found


def _renamed(names: list[str], rng: random.Random) -> Callable[[str], str]:
    """What a mutation makes of each name; exactly one name or all of them change."""
    one = rng.choice(names)
    kind = rng.randrange(5)
    if kind == 0:
        return lambda name: f"wrapped.{name}"
    if kind == 1:  # a letter too many in one part of one name
        part = rng.choice(one.split("."))
        return lambda name: name.replace(part, f"{part}x", 1) if name == one else name
    if kind == 2:  # a layer that the model does not have
        return lambda name: name.replace("layers.", "layers.9", 1) if name == one else name
    if kind == 3:
        return lambda name: "" if name == one else name
    prefix = one.split(".")[0]
    return lambda name: name.replace(prefix, f"{prefix}s", 1)


def _mutant(entry: dict[str, Any], rng: random.Random) -> dict[str, Any] | None:
    mutant = copy.deepcopy(entry)
    places = _lists(mutant)
    if not places:
        return None
    owner, key = rng.choice(places)
    listed = owner[key]
    change = _renamed(list(listed), rng)
    if isinstance(listed, dict):
        owner[key] = {new: value for old, value in listed.items() if (new := change(old))}
    else:
        owner[key] = [new for old in listed if (new := change(old))]
    return mutant


def _read(name: str, entry: dict[str, Any]) -> ModelSpec:
    return read_model(entry["config"], name, name, beside=entry.get("beside"))


def _headline(spec: ModelSpec) -> tuple[str, tuple[str, ...]]:
    return stored_formats(spec), spec.warnings


def _silent(per_model: int) -> tuple[list[str], int]:
    silent, tried = [], 0
    for name, entry in PACKAGED.items():
        if not _lists(entry):
            continue
        base = _read(name, entry)
        before = summarise(base)
        for seed in range(per_model):
            mutant = _mutant(entry, random.Random(f"{name} {seed}"))
            assert mutant is not None
            tried += 1
            try:
                spec = _read(name, mutant)
            except InstanceError:
                continue
            after = summarise(spec)
            same = (before.weight_bytes, before.mtp_bytes) == (after.weight_bytes, after.mtp_bytes)
            if not same and _headline(spec) == _headline(base):
                silent.append(f"{name} {seed}")
    return silent, tried


def test_no_mutated_list_changes_bytes_in_silence() -> None:
    silent, tried = _silent(1)
    assert silent == []
    assert tried == sum(1 for entry in PACKAGED.values() if _lists(entry)) > 0


@pytest.mark.slow
def test_no_list_of_a_thousand_mutants_changes_bytes_in_silence() -> None:
    silent, tried = _silent(25)
    assert silent == []
    assert tried >= 1000
