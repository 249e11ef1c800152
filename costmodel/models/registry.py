"""Finds the architecture families: every module in ``costmodel/models/families`` has a FAMILY.

``instances/architectures/class_defaults.json`` holds, for each ``model_type``, the numbers, flags and names that the
class in ``transformers`` has as defaults; ``make architectures`` writes it. Sizes that make a model what it is
(hidden size, layers, heads, experts) are required whatever the table says.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from costmodel.models import families
from costmodel.models.parts.builder import Builder
from costmodel.models.spec import ModelSpec
from topology.catalogue import data_dir


@dataclass(frozen=True)
class Family:
    """An architecture family: what it is called in a config and how it is read."""

    name: str
    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    read: Callable[[Builder], ModelSpec]
    #: What the configuration class says where the file is silent.
    class_defaults: Mapping[str, int] = field(default_factory=dict)


@cache
def known_families() -> tuple[Family, ...]:
    """All families, by file name."""
    found = []
    for module in sorted(pkgutil.iter_modules(families.__path__), key=lambda item: item.name):
        family = importlib.import_module(f"{families.__name__}.{module.name}").FAMILY
        found.append(family)
    return tuple(found)


@cache
def by_model_type() -> dict[str, Family]:
    """Family of each ``model_type``."""
    return {kind: family for family in known_families() for kind in family.model_types}


@cache
def by_architecture() -> dict[str, Family]:
    """Family of each entry of ``architectures``."""
    return {kind: family for family in known_families() for kind in family.architectures}


#: What makes a model what it is: never taken from a class's defaults.
ESSENTIAL = frozenset(
    """
    vocab_size hidden_size d_model n_embd num_hidden_layers n_layers num_layers n_layer
    num_attention_heads n_heads n_head num_heads intermediate_size ffn_dim moe_intermediate_size
    n_routed_experts num_experts num_local_experts moe_num_experts num_experts_per_tok moe_topk
    kv_lora_rank qk_nope_head_dim v_head_dim
    """.split()  # noqa: SIM905
)


@cache
def _table() -> dict[str, dict[str, object]]:
    text = (data_dir("architectures") / "class_defaults.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, object]] = json.loads(text)["defaults"]
    return found


def class_defaults(model_type: object) -> Mapping[str, object]:
    """Defaults of the class of a ``model_type``; none for a type the table does not know."""
    found = _table().get(model_type, {}) if isinstance(model_type, str) else {}
    return {key: value for key, value in found.items() if key not in ESSENTIAL}
