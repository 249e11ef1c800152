"""Which lines of a script run: ``if``, ``elif`` and ``else`` whose tests known variables decide.

Tests are ``[ .. ]``, ``[[ .. ]]`` and ``(( .. ))`` with one comparison. Others stay open, and what stands below them counts
as set under a condition.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace

from rackfit.importers.scripts.shell import Line, Variables, compared, fill

_TEST = re.compile(
    r"(if|elif)\s+(?:\[\[?\s+(?P<words>[^\]]+?)\s+\]\]?|\(\((?P<sum>[^()]+)\)\))\s*(?:;\s*then)?\s*"
)
#: characters of a test that is looked at
_LONGEST = 1000


@dataclass
class _Level:
    """One ``if``: whether the branch at hand runs, whether one before it does (``None``: not known), and where it stands."""

    now: bool | None
    taken: bool | None
    below: bool


@dataclass
class Branches:
    """The open ``if`` of a script."""

    levels: list[_Level] = field(default_factory=list)

    def follow(self, line: Line, variables: Variables) -> Line | None:
        """The line if it may run, with whether a condition decides on it; ``None`` for others and for branches themselves."""
        word = line.words[0].rstrip(";") if line.words else ""
        inline = word == "if" and line.words[-1].rstrip(";") == "fi"
        if word == "if" and not inline:
            decided = decide(line.text, variables)
            self.levels.append(_Level(decided, decided, line.below))
            return None
        if word in ("elif", "else") and self.levels:
            level = self.levels[-1]
            decided = decide(line.text, variables) if word == "elif" else True
            # runs if its own test holds and none before it did
            own = decided if level.taken is False else None
            level.now = False if level.taken or decided is False else own
            level.taken = level.taken or own
            return None
        if word == "fi" and self.levels:
            self.levels.pop()
            return None
        if any(level.now is False for level in self.levels):
            return None
        if any(level.now is None for level in self.levels):
            return replace(line, below=True)
        return replace(line, below=self.levels[0].below) if self.levels else line


def decide(text: str, variables: Variables) -> bool | None:
    """Whether the test of an ``if`` or ``elif`` holds; ``None`` where the script does not say."""
    test = _TEST.fullmatch(text) if len(text) <= _LONGEST else None
    if test is None:
        return None
    if test["sum"] is not None:
        return compared(test["sum"], variables.texts)
    try:
        words = shlex.split(test["words"])
    except ValueError:
        return None
    if len(words) == 2 and words[0] in ("-n", "-z"):
        value = fill(words[1], variables.texts)
        return None if _open(value) else (value != "") == (words[0] == "-n")
    if len(words) != 3:
        return None
    first, how, second = (fill(word, variables.texts) for word in words)
    if how not in ("=", "==", "!="):
        return compared(f"{first}{how}{second}", variables.texts)
    if _open(first) or _open(second) or re.search(r"[*?\[]", second):
        return None
    return (first == second) == (how != "!=")


def _open(text: str) -> bool:
    return "$" in text or "`" in text
