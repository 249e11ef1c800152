"""Points in processes of their own, such that a process that dies takes no answer with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import joblib
from joblib.externals.loky.process_executor import BrokenProcessPool

T = TypeVar("T")
R = TypeVar("R")


def in_processes(
    work: Callable[[T], R], given: Sequence[T], jobs: int
) -> Iterator[tuple[int, R | None]]:
    """Position and result of each of ``given``, in any order; ``None`` where its process died twice.

    When one process dies (killed, out of memory), the pool is lost with all that runs in it. What has
    no result yet is then asked again one at a time, so that only what kills its process is given up.
    """
    left = set(range(len(given)))
    try:
        for index, result in _pool(work, given, sorted(left), jobs):
            left.discard(index)
            yield index, result
    except BrokenProcessPool:
        pass
    for index in sorted(left):
        try:
            yield from _pool(work, given, [index], jobs)
        except BrokenProcessPool:
            yield index, None


def _pool(
    work: Callable[[T], R], given: Sequence[T], indices: Sequence[int], jobs: int
) -> Iterator[tuple[int, R]]:
    def numbered(index: int, one: T) -> tuple[int, R]:
        return index, work(one)

    # two at least: a single job would run in this very process
    with joblib.parallel_config(backend="loky"):
        yield from joblib.Parallel(
            n_jobs=jobs if jobs != 1 else 2, return_as="generator_unordered"
        )(joblib.delayed(numbered)(index, given[index]) for index in indices)
