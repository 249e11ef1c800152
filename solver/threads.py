"""The same work on several things, in threads where asked for; the order of the answers is that of the things."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Protocol, TypeVar

Thing = TypeVar("Thing")
Answer = TypeVar("Answer")


class Each(Protocol):
    """``map``: the work of every thing. Raises what the first that fails raised."""

    def __call__(
        self, work: Callable[[Thing], Answer], things: Iterable[Thing], /
    ) -> Iterable[Answer]:
        """The answers, in the order of the things."""


@contextmanager
def side_by_side(workers: int, number: int) -> Iterator[Each]:
    """``map`` for so many things, by at most ``workers`` threads."""
    if workers <= 1 or number <= 1:
        yield map
        return
    with ThreadPoolExecutor(min(workers, number)) as pool:

        def each(work: Callable[[Thing], Answer], things: Iterable[Thing]) -> Iterable[Answer]:
            # messages name what whoever asks calls an option, and a context is entered by one thread at a time
            here = copy_context()
            return pool.map(lambda thing: here.copy().run(work, thing), things)

        yield each
