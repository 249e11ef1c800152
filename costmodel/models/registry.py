"""Finds the architecture families: every module in ``costmodel/models/families`` has a FAMILY."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from costmodel.models import families
from costmodel.models.parts.builder import Builder
from costmodel.models.spec import ModelSpec


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
