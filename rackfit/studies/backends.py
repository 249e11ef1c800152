"""Where the points of a study run: in this process, in others of this machine, on a cluster."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import joblib

from rackfit.studies.base import Row
from rackfit.studies.grid import Point
from rackfit.studies.point import lost_row
from rackfit.studies.workers import in_processes
from topology.errors import InstanceError, Problem

Backend = Literal["loky", "dask", "ray"]
#: makes the row of a point, and says whether it was kept from an earlier run
Work = Callable[[Point], tuple[Row, bool]]


def check_backend(backend: Backend) -> None:
    """Make a backend known to joblib, before points are made.

    Raises ``InstanceError`` where its package is missing.
    """
    try:
        if backend == "dask":
            distributed = importlib.import_module("distributed")
            try:
                distributed.get_client()
            except ValueError:  # none yet: the scheduler in Dask's configuration, or a local one
                distributed.Client()
        elif backend == "ray":
            importlib.import_module("ray.util.joblib").register_ray()
    except ImportError:
        message = f"needs the extra: pip install 'rackfit[{backend}]'"
        raise InstanceError(Problem(f"--backend {backend}", message)) from None


def answered(
    work: Work, points: Sequence[Point], jobs: int, backend: Backend
) -> Iterator[tuple[int, Row, bool]]:
    """Position, row, and whether it was known, of every point, in any order, each as it is done."""
    if backend != "loky":
        yield from _on_cluster(work, points, jobs, backend)
    elif jobs == 1:
        for index, point in enumerate(points):
            yield _numbered(work, index, point)
    else:
        for index, answer in in_processes(work, points, jobs):
            yield (index, *(answer or (lost_row(points[index]), False)))


def _on_cluster(
    work: Work, points: Sequence[Point], jobs: int, backend: Backend
) -> Iterator[tuple[int, Row, bool]]:
    calls = (joblib.delayed(_numbered)(work, *numbered) for numbered in enumerate(points))
    with joblib.parallel_config(backend=backend):
        # Ray's gives all rows at the end
        each = joblib.parallel.get_active_backend()[0].supports_return_generator
        parallel = joblib.Parallel(
            n_jobs=jobs if jobs != 1 else 2,  # joblib does a single job in this very process
            return_as="generator_unordered" if each else "list",
        )
        yield from parallel(calls)


def _numbered(work: Work, index: int, point: Point) -> tuple[int, Row, bool]:
    return (index, *work(point))
