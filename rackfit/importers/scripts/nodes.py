"""What a shell script is made of: commands, and what they stand in."""

from __future__ import annotations

from dataclasses import dataclass

from rackfit.importers.scripts.lexer import Token


@dataclass(frozen=True)
class Simple:
    """Words of one command as written, arrays among them, with its here-document and where it writes."""

    line: int
    words: tuple[Token, ...]
    text: str | None = None
    filled: bool = True
    into: tuple[str, bool] | None = None


@dataclass(frozen=True)
class Remark:
    """A comment that speaks to Rackfit."""

    line: int
    text: str


@dataclass(frozen=True)
class Joined:
    """Commands joined by ``&&`` and ``||``: the operators stand before all but the first."""

    line: int
    parts: tuple[Node, ...]
    operators: tuple[str, ...]


@dataclass(frozen=True)
class Apart:
    """Commands whose variables the rest does not see: parts of a pipe, what runs in brackets or behind."""

    line: int
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Not:
    """A command whose success is turned round."""

    line: int
    body: Node


@dataclass(frozen=True)
class Branch:
    """``if`` and ``elif``: tests with what runs if they hold, and what runs otherwise."""

    line: int
    tests: tuple[tuple[Body, Body], ...]
    other: Body


@dataclass(frozen=True)
class Case:
    """``case``: a word, and bodies by their patterns."""

    line: int
    word: str
    items: tuple[tuple[tuple[str, ...], Body], ...]


@dataclass(frozen=True)
class For:
    """``for`` with words (``None``: those that the script is given), or with three sums in ``((;;))``."""

    line: int
    name: str
    words: tuple[str, ...] | None
    body: Body
    sums: str = ""


@dataclass(frozen=True)
class While:
    """``while``, or ``until``."""

    line: int
    test: Body
    body: Body
    until: bool


@dataclass(frozen=True)
class Function:
    """The definition of a function."""

    line: int
    name: str
    body: Body


@dataclass(frozen=True)
class Sum:
    """``((..))``: arithmetic that sets variables or is a test."""

    line: int
    text: str


@dataclass(frozen=True)
class Test:
    """``[[ .. ]]``: its words as written."""

    line: int
    words: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Commands between braces."""

    line: int
    body: Body


Node = (
    Simple
    | Remark
    | Joined
    | Apart
    | Not
    | Branch
    | Case
    | For
    | While
    | Function
    | Sum
    | Test
    | Group
)
Body = tuple[Node, ...]
