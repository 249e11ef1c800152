"""The same work on several things, in threads where asked for; the order of the answers is that of the things."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Thing = TypeVar("Thing")
Answer = TypeVar("Answer")


def in_threads(
    work: Callable[[Thing], Answer], things: Sequence[Thing], workers: int
) -> list[Answer]:
    """``work`` of every thing, by at most ``workers`` threads. Raises what the first that fails raised."""
    if workers <= 1 or len(things) <= 1:
        return [work(thing) for thing in things]
    with ThreadPoolExecutor(min(workers, len(things))) as pool:
        return list(pool.map(work, things))
