"""The error tree of Rackfit, in the lowest package so that every package can raise it.

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

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


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
