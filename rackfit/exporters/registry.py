"""The export targets: one module ``target_<name>.py`` each, found by file name."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Protocol, cast

import rackfit.exporters as package
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from rackfit.exporters.launch.deployment import Deployment
from rackfit.exporters.launch.limit import Limit
from topology.errors import ExportError, InstanceError, Problem, option

PREFIX = "target_"


class Exporter(Protocol):
    """What every target module has."""

    NAME: str
    SUMMARY: str
    #: whether the files start engines; else they describe the layout, all of it
    LAUNCHES: bool

    def limits(self, deployment: Deployment) -> list[Limit]:
        """What the target cannot express of this layout; none if all of it."""

    def approximate(self, instance: Instance, layout: Layout) -> Layout:
        """The nearest layout that it can express, where every limit is approximable."""

    def notes(self, deployment: Deployment) -> list[str]:
        """What a person must know before the files are used."""

    def render(self, deployment: Deployment) -> dict[str, str]:
        """The files: relative path to text."""


def exporters() -> dict[str, Exporter]:
    """Every target by name. Two modules with one name are refused with ``ExportError``."""
    found: dict[str, Exporter] = {}
    for entry in sorted(pkgutil.iter_modules(package.__path__), key=lambda item: item.name):
        if not entry.name.startswith(PREFIX):
            continue
        module = cast(Exporter, importlib.import_module(f"{package.__name__}.{entry.name}"))
        if module.NAME in found:
            raise ExportError(f"two exporters are called {module.NAME!r}; rename {entry.name}.py")
        found[module.NAME] = module
    return found


def exporter(name: str) -> Exporter:
    """One target. Raises ``InstanceError`` with the known names."""
    known = exporters()
    if name not in known:
        raise InstanceError(
            Problem(
                option("to"), f"unknown target {name[:60]!r}; known: {', '.join(sorted(known))}"
            )
        )
    return known[name]
