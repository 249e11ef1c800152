"""Words and numbers of a chart: how they are shortened, broken into lines and kept apart.

Widths are counted in letters; what a letter is wide is the chart's affair.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence


def apart(marks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Marks from left to right without those whose label would touch the one before."""
    kept: list[tuple[float, str]] = []
    for x, label in marks:
        if not kept or x - kept[-1][0] > 4.0 * (len(label) + len(kept[-1][1])) + 6.0:
            kept.append((x, label))
    return kept


def covered(places: Iterable[tuple[int, int]]) -> Iterator[int]:
    """For each place, how many later ones lie on it: they are drawn over it, so it must be larger."""
    given = list(places)
    for index, (x, y) in enumerate(given):
        yield sum(abs(x - a) <= 3 and abs(y - b) <= 3 for a, b in given[index + 1 :])


def parts(label: str) -> list[str]:
    """Where a label may be broken: between words, and after hyphens."""
    return re.findall(r"\s*[^\s-]*-|\s*[^\s-]+", label)


def lines_of(label: str, letters: int) -> list[str]:
    """A label in lines of at most ``letters``, broken inside a word only where nothing else helps."""
    lines: list[str] = []
    for part in parts(label):
        if lines and len(lines[-1]) + len(part) <= letters:
            lines[-1] += part
        else:
            word = part.strip()
            lines += [word[i : i + letters] for i in range(0, len(word), letters)]
    return lines


def cut(text: str, letters: int) -> str:
    """The text, or as much of it as ``letters`` hold."""
    return text if len(text) <= letters else text[: letters - 1] + "…"


def brief(value: float) -> str:
    """A number over a bar: three digits, or whole."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def short(value: float) -> str:
    """A number at an axis: whole numbers in full, others to three digits."""
    if value == int(value) and abs(value) < 1e7:
        return f"{int(value):,}"
    return f"{value:.3g}"
