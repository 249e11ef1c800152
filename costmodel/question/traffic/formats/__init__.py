"""Traces as others publish them, one file each: which of their fields are ours.

Every module has a ``FORMAT``. A file is of the format with most of its needed fields in the header (CSV) or in the first object
(JSON lines).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache

from topology.errors import InstanceError, Problem

#: what every request has, by our names
NEEDED = ("t_s", "input_tokens", "output_tokens")


@dataclass(frozen=True)
class TraceFormat:
    """One format: its own name of each of our columns.

    ``lines``: whether it is lines of JSON, else CSV. ``marks``: fields that tell it from others. ``seconds``: what a cell of its
    times says; raises ``ValueError``. ``block_tokens``: tokens of a block. ``failed``: what to read instead, where requests
    without an answer are in it.
    """

    title: str
    lines: bool
    columns: Mapping[str, str]
    seconds: Callable[[str], float] = float
    marks: tuple[str, ...] = ()
    block_tokens: int | None = None
    failed: str = ""

    @property
    def needed(self) -> tuple[str, ...]:
        """Fields that every request has."""
        return (*(self.columns[name] for name in NEEDED), *self.marks)


@cache
def trace_formats() -> tuple[TraceFormat, ...]:
    """All formats, by file name."""
    names = sorted(found.name for found in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}").FORMAT for name in names)


def format_of(fields: Collection[str], place: str, *, lines: bool) -> TraceFormat:
    """The format of a file with such fields; ``lines``: of JSON. Raises ``InstanceError`` where none fits."""
    known = [one for one in trace_formats() if one.lines == lines]
    fitting = [one for one in known if set(one.needed) <= set(fields)]
    if fitting:
        return max(fitting, key=lambda one: len(one.needed))
    nearest = max(known, key=lambda one: len(set(one.needed) & set(fields)) - len(one.marks))
    missing = ", ".join(name for name in nearest.needed if name not in fields)
    ways = "; ".join(f"{one.title}: {', '.join(one.columns.values())}" for one in known)
    what = "fields" if lines else "columns"
    raise InstanceError(Problem(place, f"{what} missing: {missing}; known are those of {ways}"))
