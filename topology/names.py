"""Names and lines of text that a person or a file gives: what they may hold, checked once where they are read.

A name that passes may still mean something to a shell, a browser or a terminal: whoever writes it
somewhere quotes it for that language.
"""

from __future__ import annotations

from reprlib import Repr
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from topology.errors import InstanceError, Problem

#: characters of the longest name
MOST_NAME = 200
#: characters of the longest line (a path, a title, a reason)
MOST_LINE = 4096
#: characters of the longest description
MOST_TEXT = 20_000


def one_line(text: str) -> str:
    """``text`` if every character of it can be printed on one line. Raises ``ValueError``.

    Control characters, line and paragraph separators, marks that turn the direction of writing and
    halves of surrogate pairs cannot.
    """
    if not text.isprintable():
        strange = next(character for character in text if not character.isprintable())
        raise ValueError(f"must be printable text on one line, got {strange!a} in it")
    return text


def lines(text: str) -> str:
    """``text`` if each of its lines can be printed; tabs are allowed. Raises ``ValueError``."""
    one_line(text.replace("\n", "").replace("\t", ""))
    return text


#: what a thing is called: a cluster, a rack, a chip, a model, a scenario
Name = Annotated[
    str, StringConstraints(min_length=1, max_length=MOST_NAME), AfterValidator(one_line)
]
#: one line, perhaps empty: a title, a path, a basis of a figure
Line = Annotated[str, StringConstraints(max_length=MOST_LINE), AfterValidator(one_line)]
#: sentences, perhaps on several lines
Prose = Annotated[str, StringConstraints(max_length=MOST_TEXT), AfterValidator(lines)]


def check_name(text: str, place: str, most: int = MOST_NAME) -> str:
    """``text`` if it is a name. Raises ``InstanceError`` saying what of it is not."""
    if not 0 < len(text) <= most:
        raise InstanceError(Problem(place, f"a name has 1 to {most} characters, got {len(text)}"))
    try:
        return one_line(text)
    except ValueError as error:
        raise InstanceError(Problem(place, f"{error}: {text[:60]!a}")) from None


def shown(text: object, most: int | None = None) -> str:
    """``text`` as a terminal may print it: characters that it would obey are written as escapes.

    Text of more than ``most`` characters is cut, and the cut is said.
    """
    cut = str(text)
    if most is not None and len(cut) > most:
        cut = f"{cut[:most]}... ({len(cut):,} characters)"
    if cut.isprintable():
        return cut
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in cut
    )


class _Brief(Repr):
    """``repr`` of the first few parts of a value, two levels deep, whatever it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother, self.maxlong = 2, 60, 60, 60
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = 3


def brief(value: object) -> str:
    """A value as a message shows it: its start, in characters that can be printed."""
    return shown(_Brief().repr(value), 120)


def shown_lines(text: str) -> str:
    """As :func:`shown`, its line breaks kept."""
    return "\n".join(shown(line) for line in text.split("\n"))
