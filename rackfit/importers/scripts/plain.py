"""What a few plain commands print: ``echo``, ``printf``, ``seq``, ``basename`` and ``dirname`` of known words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackfit.importers.scripts.variables import OPEN

#: numbers that ``seq`` may print
_MOST_NUMBERS = 10_000


def printed_by(words: Sequence[str]) -> str | None:
    """What a command of these words prints; ``None`` for those that only a shell can run."""
    program, given = words[0], words[1:]
    if program == "echo" and not (given and given[0].startswith("-")):
        return " ".join(given)
    if program == "printf" and given and re.fullmatch(r"(?:[^%\\]|%s|%d|%%|\\n)*", given[0]):
        return _printed(given[0], given[1:])
    if any(OPEN in word for word in words):
        return None
    if (
        program == "seq"
        and 0 < len(given) < 4
        and all(re.fullmatch(r"-?\d{1,6}", one) for one in given)
    ):
        numbers = [int(one) for one in given]
        first, step, last = (
            (1, 1, *numbers)
            if len(numbers) == 1
            else (numbers[0], *([1] if len(numbers) == 2 else numbers[1:2]), numbers[-1])
        )
        if not step or abs(last - first) // abs(step) > _MOST_NUMBERS:
            return None
        return "\n".join(map(str, range(first, last + (1 if step > 0 else -1), step)))
    if program in ("basename", "dirname") and len(given) == 1 and given[0].strip("/"):
        head, _, tail = given[0].rstrip("/").rpartition("/")
        return tail if program == "basename" else head or ("/" if given[0].startswith("/") else ".")
    return None


def _printed(pattern: str, words: Sequence[str]) -> str | None:
    """What ``printf`` makes of as many words as its pattern has places."""
    left = iter(words)
    if len(re.findall(r"%[sd]", pattern)) != len(words):
        return None
    text = re.sub(
        r"%[sd%]|\\n", lambda found: {"%%": "%", "\\n": "\n"}.get(found[0]) or next(left), pattern
    )
    return text.rstrip("\n")
