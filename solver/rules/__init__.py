"""The solver's side of the judge's rules: one file per rule, of the same name as in ``costmodel.rules``.

A module with ``constrain(model)`` states its rule in the fleet model (:class:`solver.fleet.variables.FleetVariables`)
when all variables are there; the order never matters. One with ``allows(instance, shapes)`` says for each shape whether
a replica may be built so. Every module says in ``HOLDS`` how its rule is kept: by these, by how shapes are made or
bounded, or by how a replica is built; ``OF`` says whether a ``replica`` keeps it alone or the ``fleet`` together.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType, ModuleType

from costmodel.question.instance import Instance
from solver.shapes.shapes import ShapeTable


@cache
def rules() -> Mapping[str, ModuleType]:
    """Every rule by name, in alphabetical order."""
    found = {
        module.name: importlib.import_module(f"{__name__}.{module.name}")
        for module in sorted(pkgutil.iter_modules(__path__), key=lambda entry: entry.name)
    }
    return MappingProxyType(found)


def allowed(instance: Instance, shapes: ShapeTable) -> ShapeTable:
    """The shapes that every rule allows."""
    for rule in rules().values():
        if hasattr(rule, "allows"):
            shapes = shapes.take(rule.allows(instance, shapes))
    return shapes
