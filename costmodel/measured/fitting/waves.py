"""Releases whose requests of one length do not come in waves, though their engine prefills first.

Requests of one length that start together stay together as long as all that wait are prefilled before anybody decodes on.
Clients that send one by one, or answers that end early, scatter them; no row says so. What one release does is read from
all of its rows alike, after a fit that takes them to come in waves.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.fit import ROBUST_AT, Fitted, LogErrors, Problem, fit
from costmodel.measured.predict import scattered, waved
from costmodel.measured.runs import Run

Array = NDArray[np.float64]


def scattered_releases(
    problem: Problem, fitted: Fitted, chosen: NDArray[np.bool_] | None = None
) -> tuple[str, ...]:
    """Releases (``MeasuredRow.release``) whose chosen rows speak against waves.

    TPOT is then predicted better where each decoding request sees all prefill of the others, by more than half the
    logarithm of the release's rows (Schwarz); the loss is that of the fit, a negative log-likelihood.
    """
    keep = np.ones(len(problem.runs), dtype=bool) if chosen is None else chosen
    keep = keep & waved(problem.runs)
    releases = np.array([run.row.release for run in problem.runs])
    names = sorted(set(releases[keep]) - {""})
    gains = _loss(problem, fitted) - _loss(without_waves(problem, tuple(names)), fitted)
    found = []
    for name in names:
        here = keep & (releases == name)
        if gains[here].sum() > 0.5 * log(here.sum()):
            found.append(str(name))
    return tuple(found)


def fit_of_waves(
    problem: Problem, chosen: NDArray[np.bool_] | None = None, near: Fitted | None = None
) -> tuple[Problem, Fitted, tuple[str, ...]]:
    """The fit of the chosen rows, the problem as it sees them, and the releases it found scattered."""
    fitted = fit(problem, chosen, near=near)
    releases = scattered_releases(problem, fitted, chosen)
    if not releases:
        return problem, fitted, releases
    problem = without_waves(problem, releases)
    return problem, fit(problem, chosen, near=fitted), releases


def without_waves(problem: Problem, releases: tuple[str, ...]) -> Problem:
    """The problem where requests of these releases come one by one."""
    runs: list[Run] = scattered(problem.runs, releases)
    return Problem(runs, problem.table, problem.batches, problem.measured_s)


def _loss(problem: Problem, fitted: Fitted) -> Array:
    structure = fitted.structure
    levels = structure.levels(
        [run.chip for run in problem.runs], [run.row.engine for run in problem.runs]
    )
    errors = LogErrors(problem).at(structure.scales(fitted.x, levels))
    return np.asarray(np.log1p((errors / ROBUST_AT) ** 2))
