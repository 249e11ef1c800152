"""The registry of scale-up topologies: a new one is one file in this folder.

Template::

    class RingSpec(FabricSpec):
        kind: Literal["ring"] = "ring"
        hop_latency_s: Seconds = 1e-6

    @topology(RingSpec)
    class Ring(Fabric):
        ...

The folder is scanned in alphabetical order; two files with the same kind are refused.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar, cast

from topology.catalogue import checked
from topology.chip import Chip
from topology.errors import InstanceError, Problem
from topology.fabric import Fabric, FabricSpec


class FabricBuilder(Protocol):
    """Makes the fabric of a domain from its options, its chips and what has failed in it."""

    def __call__(
        self, spec: Any, chips: Sequence[Chip], failed: frozenset[str] = frozenset()
    ) -> Fabric:
        """Raises ``InstanceError`` for options the chips do not fit."""
        ...


_BUILDERS: dict[str, tuple[type[FabricSpec], FabricBuilder]] = {}
_Fabric = TypeVar("_Fabric", bound=Fabric)


def topology(spec: type[FabricSpec]) -> Callable[[type[_Fabric]], type[_Fabric]]:
    """Register the decorated fabric under the ``kind`` of its options model."""

    def register(fabric: type[_Fabric]) -> type[_Fabric]:
        kind = spec.model_fields["kind"].default
        if kind in _BUILDERS:
            raise ValueError(f"two topologies are called {kind!r}")
        fabric.kind = kind
        _BUILDERS[kind] = (spec, cast(FabricBuilder, fabric))
        return fabric

    return register


@lru_cache(maxsize=1)
def builders() -> dict[str, tuple[type[FabricSpec], FabricBuilder]]:
    """Every topology by kind, found by scanning this folder."""
    import topology.builders as folder

    for module in sorted(pkgutil.iter_modules(folder.__path__), key=lambda found: found.name):
        importlib.import_module(f"{folder.__name__}.{module.name}")
    return _BUILDERS


def read_spec(data: Any, place: str) -> FabricSpec:
    """Validate the ``fabric`` entry of a cluster file. Raises ``InstanceError``."""
    kind = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in builders():
        known = ", ".join(sorted(builders()))
        raise InstanceError(Problem(f"{place}.kind", f"unknown topology {kind!r}; known: {known}"))
    with checked(place):
        return (builders()[kind][0]).model_validate(data)


def build(spec: FabricSpec, chips: Sequence[Chip], failed: frozenset[str] = frozenset()) -> Fabric:
    """The fabric that ``spec`` describes."""
    return builders()[spec.kind][1](spec, chips, failed)
