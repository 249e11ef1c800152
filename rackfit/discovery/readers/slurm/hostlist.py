"""Slurm's lists of hosts: ``node[01-03,07],login1`` and several brackets in a name."""

from __future__ import annotations

import re
from itertools import product

from topology.errors import InstanceError, Problem
from topology.names import shown
from topology.spec import MAX_CHIPS

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def expand(text: str, place: str) -> list[str]:
    """The hosts of a list, in order. Raises ``InstanceError`` for what is none and for too many hosts."""
    hosts: list[str] = []
    for word in _words(text, place):
        parts = re.split(r"\[([^\[\]]*)\]", word)
        choices = [_numbers(part, place) if odd % 2 else [part] for odd, part in enumerate(parts)]
        number = 1
        for choice in choices:
            number *= len(choice)
        if len(hosts) + number > MAX_CHIPS:
            raise InstanceError(Problem(place, f"more than {MAX_CHIPS:,} hosts: {shown(word, 80)}"))
        hosts += ["".join(chosen) for chosen in product(*choices)]
    return hosts


def _words(text: str, place: str) -> list[str]:
    """Parts between commas outside brackets."""
    words, depth, begin = [], 0, 0
    for position, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            break
        if character == "," and not depth:
            words.append(text[begin:position])
            begin = position + 1
    if depth:
        raise InstanceError(Problem(place, f"brackets do not match in {shown(text, 80)}"))
    return [word.strip() for word in [*words, text[begin:]] if word.strip()]


def _numbers(text: str, place: str) -> list[str]:
    """The numbers of one bracket, with their leading zeros."""
    numbers: list[str] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            message = f"expected numbers and ranges in brackets, got {shown(part, 40)}"
            raise InstanceError(Problem(place, message))
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or len(numbers) + last - first >= MAX_CHIPS:
            raise InstanceError(Problem(place, f"not a range of hosts: {shown(part, 40)}"))
        numbers += [str(number).zfill(len(found[1])) for number in range(first, last + 1)]
    return numbers
