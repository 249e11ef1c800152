"""Finds studies by file name; two of one name are refused."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache

from rackfit.studies.base import Study
from topology.errors import InstanceError, Problem


@lru_cache(maxsize=1)
def studies() -> dict[str, Study]:
    """Every study in :mod:`rackfit.studies.questions`, by name."""
    from rackfit.studies import questions

    names = sorted(module.name for module in pkgutil.iter_modules(questions.__path__))
    loaded = (importlib.import_module(f"{questions.__name__}.{name}") for name in names)
    return collect((name, module.STUDY) for name, module in zip(names, loaded, strict=True))


def collect(found: Iterable[tuple[str, Study]]) -> dict[str, Study]:
    """Studies by name. Raises ``ValueError`` for two of one name, or one not named like its file."""
    collected: dict[str, Study] = {}
    for module, study in found:
        if study.name in collected:
            raise ValueError(f"two studies are called {study.name!r}; one is in {module}.py")
        if study.name != module.replace("_", "-"):
            raise ValueError(f"the study in {module}.py is called {study.name!r}")
        collected[study.name] = study
    return collected


def find_study(name: str) -> Study:
    """The study of a name. Raises ``InstanceError`` with what exists."""
    known = studies()
    if name in known:
        return known[name]
    close = get_close_matches(name, known, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    raise InstanceError(
        Problem("study", f"unknown name {name[:80]!r}; {meant}known: {', '.join(known)}")
    )
