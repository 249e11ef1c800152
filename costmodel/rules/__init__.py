"""One rule per file: what makes a layout invalid. Every module has ``check``; none sees the solver.

``check(instance, layout, priced)`` returns violations in words. Rules with ``STRUCTURE = True`` come first and
need no prices (``priced`` is empty then): a layout that breaks one of them cannot be priced at all.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Protocol

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: its name, where, and what was found against what is allowed."""

    rule: str
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message} [{self.rule}]"


class Check(Protocol):
    """Signature of every rule's ``check``."""

    def __call__(self, instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
        """Violations of this rule, none if it holds."""


@cache
def rules(*, structure: bool) -> Mapping[str, Check]:
    """Every rule of one kind by name, in alphabetical order."""
    found: dict[str, Check] = {}
    for entry in sorted(pkgutil.iter_modules(__path__), key=lambda entry: entry.name):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        if getattr(module, "STRUCTURE", False) == structure:
            found[entry.name] = module.check
    return MappingProxyType(found)
