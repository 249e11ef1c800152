"""The error tree of Rackfit, in the lowest package so that every package can raise it, and how its messages name options.

::

    RackfitError
    ├── InstanceError         bad input: every problem with place, value and what would be accepted
    │   └── NoRoute           chips that no working link joins
    ├── NoFeasibleLayout      a valid question whose answer is "nothing fits"
    ├── NoLayoutInTime        the time limit came before the first verified layout
    ├── ExportError           a target cannot express the layout
    └── VerificationError     the evaluator contradicts the solver: a bug, never bad input
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

#: fields of the request that is answered, by the options and the kinds of data that they stand for; ``None``: a
#: command line asks. Each request has its own; a thread that works for one starts in a copy of its context, as the
#: threads of a search say messages, too
_fields: ContextVar[Mapping[str, str] | None] = ContextVar("fields of the request", default=None)


@contextmanager
def asked_with(fields: Mapping[str, str]) -> Iterator[None]:
    """Messages inside name these fields instead of the command line's options."""
    token = _fields.set(fields)
    try:
        yield
    finally:
        _fields.reset(token)


def option(name: str, value: str = "") -> str:
    """What whoever asks calls an option: ``--rate``, or a field of a request; empty where a request has none for it.

    ``value`` stands behind an option alone: ``--hosts FILE``.
    """
    fields = _fields.get()
    if fields is not None:
        return fields.get(name, "")
    return f"--{name} {value}".rstrip()


def kind_of_data(kind: str) -> str:
    """The place of a name of the catalogue: its kind (``models``), or the field of a request that may hold one."""
    fields = _fields.get()
    return kind if fields is None else fields.get(kind, kind)


def either(*ways: str) -> str:
    """``a, b or c`` of the ways that there are."""
    *first, last = [way for way in ways if way] or [""]
    return f"{', '.join(first)} or {last}" if first else last


def on_command_line(words: str, otherwise: str = "") -> str:
    """Words that help only who has a command line and files."""
    return words if _fields.get() is None else otherwise


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the input.

    ``place`` is a file and a path inside it (``cluster.yaml: domains[0].chip``), ``message`` says
    what was found and what would be accepted.
    """

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class RackfitError(Exception):
    """Base of every error that Rackfit raises on purpose."""


class InstanceError(RackfitError):
    """Bad input. Carries all problems found, not only the first (exit code 2)."""

    def __init__(self, problems: Iterable[Problem] | Problem | str):
        if isinstance(problems, str):
            problems = [Problem("", problems)]
        elif isinstance(problems, Problem):
            problems = [problems]
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


#: problems of one file that are told one by one
MOST_TOLD = 20


def told(problems: Iterable[Problem], place: str) -> list[Problem]:
    """Each problem once; of very many the first ones, and at ``place`` how many more there are."""
    each = list(dict.fromkeys(problems))
    more = len(each) - MOST_TOLD
    return [*each[:MOST_TOLD], Problem(place, f"and {more:,} more problems")] if more > 0 else each


@contextmanager
def noted(problems: list[Problem]) -> Iterator[None]:
    """Add what is wrong inside to ``problems`` instead of raising it: a user is told everything at once."""
    try:
        yield
    except InstanceError as error:
        problems.extend(error.problems)


class NoRoute(InstanceError):
    """Chips that no working link joins: bad input where a user names them, one shape less for a search."""


class NoFeasibleLayout(RackfitError):
    """No layout satisfies the instance (exit code 1). The message names the limit and a way out.

    ``proven``: a bound shows that none exists; else none was found where the bound allows one.
    """

    def __init__(self, message: str, *, proven: bool = True):
        self.proven = proven
        super().__init__(message)


class NoLayoutInTime(RackfitError):
    """The time limit ended the search before a first verified layout (exit code 3)."""


class ExportError(RackfitError):
    """The target of an export cannot express the layout."""


class VerificationError(RackfitError):
    """The evaluator disagrees with the solver (exit code 4): a bug worth a report."""
