"""What was read of a config, assumed and found wrong; values and keys in words for messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from costmodel.models.spec import Reading
from topology.errors import InstanceError, Problem


def shown(value: object) -> str:
    """A short printable form of an untrusted value, for messages."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, dict | list):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass
class ReadLog:
    """What was read, assumed and found wrong in one file."""

    readings: dict[str, Reading] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def read(self, key: str, value: str, source: str) -> None:
        """Remember one value that was used, the first time it is."""
        self.readings.setdefault(key, Reading(key, value, source))

    def note(self, text: str) -> None:
        """Add a note once."""
        if text not in self.notes:
            self.notes.append(text)

    def so_far(self) -> Callable[[], bool]:
        """A question to ask after some keys were read: whether none of them was wrong.

        A key that is wrong has a stand-in, which must not be said to contradict another.
        """
        before = len(self.problems)
        return lambda: len(self.problems) == before

    def stop_if_wrong(self) -> None:
        """Raise ``InstanceError`` with every problem found so far, if there is one."""
        if self.problems:
            raise InstanceError(dict.fromkeys(self.problems))


def counted(values: Sequence[Any]) -> str:
    """A list in few words: how often each value occurs, or only its length."""
    kinds = Counter(str(value) for value in values if isinstance(value, int | str))
    if len(kinds) > 4 or kinds.total() != len(values):
        return f"a list of {len(values)}"
    return ", ".join(f"{num} x {value[:24]}" for value, num in kinds.items())


def missing(names: Sequence[str]) -> str:
    """That a key is missing, and its other names."""
    return "is missing" + (f" (also known as {', '.join(names[1:])})" if len(names) > 1 else "")
