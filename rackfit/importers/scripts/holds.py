"""Whether a test holds: ``[ .. ]``, ``[[ .. ]]`` and ``test`` on what is known; ``None`` where the script does not say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rackfit.importers.scripts.expand import text_of
from rackfit.importers.scripts.sums import COMPARED, OpenSumError, Sum
from rackfit.importers.scripts.variables import OPEN, Variables

#: words of a test that is looked at
_MOST = 200


def holds(raw: Sequence[str], variables: Variables, *, double: bool) -> bool | None:
    """Whether words as written hold; ``double``: those of ``[[ .. ]]``, which know patterns and ``&&``."""
    if not raw or len(raw) > _MOST:
        return None
    found = _Test(list(raw), variables, double)
    value = found.either(0)
    return value if found.at == len(raw) else None


@dataclass
class _Test:
    raw: list[str]
    variables: Variables
    double: bool
    at: int = 0

    def here(self) -> str:
        return self.raw[self.at] if self.at < len(self.raw) else ""

    def either(self, depth: int) -> bool | None:
        value = self.both(depth)
        while self.here() == ("||" if self.double else "-o"):
            self.at += 1
            value = either(value, self.both(depth))
        return value

    def both(self, depth: int) -> bool | None:
        value = self.one(depth)
        while self.here() == ("&&" if self.double else "-a"):
            self.at += 1
            value = both(value, self.one(depth))
        return value

    def one(self, depth: int) -> bool | None:
        word, left = self.here(), len(self.raw) - self.at
        if depth > 20:
            return None
        if word == "!" and left > 1:
            self.at += 1
            return turned(self.one(depth + 1))
        if word in ("(", "\\(") and left > 2:
            self.at += 1
            value = self.either(depth + 1)
            self.at += self.here() in (")", "\\)")
            return value
        following = self.raw[self.at + 1] if left > 1 else ""
        if left > 2 and following in ("=", "==", "!=", "=~", *COMPARED):
            self.at += 3
            return self._compared(word, following, self.raw[self.at - 1])
        if re.fullmatch(r"-[a-zA-Z]", word) and left > 1:
            self.at += 2
            return self._asked(word, following)
        self.at += 1
        text = self._text(word)
        return None if OPEN in text else text != ""

    def _text(self, raw: str) -> str:
        return text_of(raw, self.variables)

    def _asked(self, what: str, raw: str) -> bool | None:
        """``-z`` and ``-n``; files and descriptors are not looked at."""
        if what not in ("-z", "-n"):
            return None
        text = self._text(raw)
        # of a text that begins with something known it is known that there is one
        return None if text[:1] == OPEN else (text == "") == (what == "-z")

    def _compared(self, first: str, how: str, second: str) -> bool | None:
        left, right = self._text(first), self._text(second)
        if OPEN in left or OPEN in right or how == "=~":
            return None
        if how.startswith("-"):
            try:
                numbers = [
                    Sum(text, self.variables.look if self.double else _unnamed).value()
                    for text in (left, right)
                ]
            except OpenSumError:
                return None
            return COMPARED[how](*numbers)
        if how in ("<", ">", "<=", ">="):
            return None
        pattern = self.double and re.search(
            r"[*?\[]", re.sub(r"'[^']*'|\"[^\"]*\"|\\.", "", second)
        )
        if pattern and "(" in second:
            return None
        same = fnmatchcase(left, right.replace("[^", "[!")) if pattern else left == right
        return same == (how != "!=")


def _unnamed(name: str) -> None:
    """``test`` compares numbers, not variables."""
    return


def both(first: bool | None, second: bool | None) -> bool | None:
    """Whether both hold, as far as that is known."""
    return False if first is False or second is False else None if None in (first, second) else True


def either(first: bool | None, second: bool | None) -> bool | None:
    """Whether one of two holds, as far as that is known."""
    return True if first or second else None if None in (first, second) else False


def turned(value: bool | None) -> bool | None:
    """The opposite, as far as that is known."""
    return None if value is None else not value
