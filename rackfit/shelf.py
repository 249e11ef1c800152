"""Modules found by their place: each file of a folder is one, and no list of them is kept."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def modules(folder: ModuleType) -> dict[str, ModuleType]:
    """The modules of a package by name, in alphabetical order."""
    names = sorted(found.name for found in pkgutil.iter_modules(folder.__path__))
    return {name: importlib.import_module(f"{folder.__name__}.{name}") for name in names}
