"""What a script sets, as far as it says so itself: variables, arrays, the words that it or a function is given."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

#: stand in a text for the ``$`` of what only the shell knows, and for spaces in it
OPEN, OPEN_SPACE = "\ue000", "\ue001"
#: what is only known when the script is started
_GIVEN = re.compile(rf"{OPEN}(?:\d|[@*#]|OPTARG|REPLY|\{{(?:\d|[@*#]|OPTARG|REPLY))")


#: characters of all words of a script together, as written and as they become
_MOST_CHARS = 4_000_000


class TooLongError(Exception):
    """Words that grow without end, or stand too deep in each other."""


@dataclass
class Variables:
    """``texts`` and ``arrays`` by name; ``given``: the words behind a script or a function, ``None`` if not known.

    ``doubtful``: variables that an open condition sets, with all that they rest on; ``used`` those that were looked at.
    """

    texts: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)
    given: list[str] | None = None
    doubtful: dict[str, set[str]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    #: characters of all words so far, one count for a script and what runs apart in it
    spent: list[int] = field(default_factory=lambda: [0])
    #: words in words that are being put in
    depth: int = 0

    def spend(self, characters: int) -> None:
        """Count characters of a word. Raises ``TooLongError`` for a script whose words grow without end."""
        self.spent[0] += characters
        if self.spent[0] > _MOST_CHARS:
            raise TooLongError

    def apart(self) -> Variables:
        """A copy, for what runs in a shell of its own."""
        return Variables(
            dict(self.texts), {name: list(words) for name, words in self.arrays.items()},
            None if self.given is None else list(self.given), {name: set(on) for name, on in self.doubtful.items()},
            set(self.exported), spent=self.spent,
        )  # fmt: skip

    def look(self, name: str) -> str | None:
        """The text of a variable, ``None`` if the script does not set it."""
        self.used |= self.doubtful.get(name, set())
        if name in self.texts:
            return self.texts[name]
        if name in self.arrays:
            return next(iter(self.arrays[name]), "")
        if name.isdecimal() and name != "0" and self.given is not None:
            return self.given[int(name) - 1] if int(name) <= len(self.given) else ""
        return None

    def words(self, name: str) -> list[str] | None:
        """All words of an array, or those that are given for ``@`` and ``*``; ``None`` if they are not known."""
        self.used |= self.doubtful.get(name, set())
        if name in ("@", "*"):
            return self.given
        if name in self.arrays:
            return self.arrays[name]
        return [self.texts[name]] if name in self.texts else None

    def set(self, name: str, value: str, *, below: bool) -> None:
        """Take an assignment; of two below open conditions that differ neither counts.

        What an argument may set otherwise stays as it is without one.
        """
        known = self.texts.get(name)
        rests_on = set(self.used)
        if below:
            rests_on |= {name} if known is None or OPEN not in known else set()
            if known is not None and known != value:
                if not _GIVEN.match(value):
                    self._conflict(name)
                    return
                value = known
            elif known is not None:
                rests_on = self.doubtful.get(name, set())
        self.arrays.pop(name, None)
        self.texts[name] = value
        self.doubtful.pop(name, None)
        if rests_on:
            self.doubtful[name] = rests_on

    def append(self, name: str, value: str, *, below: bool) -> None:
        """Take what ``+=`` adds to a text; what an open condition adds is named."""
        known = self.texts.get(name, "")
        if below:
            value = value if name not in self.texts else f" {OPEN}{name}"
        self.texts[name] = known + value
        self.doubtful.setdefault(name, set()).update(self.used)

    def put(self, name: str, words: Iterable[str], *, more: bool, below: bool) -> None:
        """Take an array, or more words of it; what an open condition adds is named, of two that differ neither counts."""
        words = list(words)
        known = self.arrays.get(name)
        rests_on = set(self.used)
        if below and known is not None:
            if more:
                words = [f"{OPEN}{name}"]
            elif known != words:
                words = [f"{OPEN}{name}"]
                rests_on = set()
        elif below:
            rests_on |= {name}
        self.texts.pop(name, None)
        self.arrays[name] = [*(known or []), *words] if more else words
        self.doubtful.pop(name, None)
        if rests_on:
            self.doubtful[name] = rests_on

    def _conflict(self, name: str) -> None:
        self.texts[name] = f"{OPEN}{name}"
        self.doubtful.pop(name, None)


def closed(text: str) -> str:
    """A text as the script has it, with ``$`` before what only the shell knows."""
    return text.replace(OPEN, "$").replace(OPEN_SPACE, " ")
