"""The same work on several things, in threads where asked for; the order of the answers is that of the things."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context, copy_context
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
    # messages name what whoever asks calls an option
    with ThreadPoolExecutor(
        min(workers, number), initializer=_take, initargs=(copy_context(),)
    ) as pool:
        yield pool.map


def _take(context: Context) -> None:
    """Give the thread what holds where it was begun."""
    for variable, value in context.items():
        variable.set(value)
