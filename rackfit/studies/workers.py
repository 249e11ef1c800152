"""Points in processes of their own, such that a process that dies takes no answer with it."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
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
    # two at least: a single job would run in this very process. Folders where a person wants them, not in /dev/shm
    with joblib.parallel_config(backend="loky", temp_folder=tempfile.gettempdir()):
        yield from joblib.Parallel(
            n_jobs=jobs if jobs != 1 else 2, return_as="generator_unordered"
        )(joblib.delayed(_numbered)(work, index, given[index]) for index in indices)


def _numbered(work: Callable[[T], R], index: int, one: T) -> tuple[int, R]:
    result = work(one)
    _settle()
    return index, result


@lru_cache(maxsize=1)
def _settle() -> None:
    """Take what the first point left (modules, catalogues) out of garbage collection.

    The pool collects once a second in each process, which would walk through all of it each time.
    """
    gc.collect()
    gc.freeze()
