"""How well the shipped parameters are known, from the fit that gave them; the constants themselves stay as they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.crossvalidation import fold_of
from costmodel.measured.fitting.fit import (
    Fitted,
    Problem,
    measured_ttft_s,
    prefill_loads,
)
from costmodel.measured.fitting.parameters import ALL, rounded
from costmodel.measured.own.deviations import USUAL, USUAL_PACE, deviations
from costmodel.measured.own.first_token import log_errors, log_slopes, logarithms
from costmodel.measured.own.pace import NAMES, own_errors
from costmodel.measured.own.prior import OTHER, Known, cell_covariance, factor_rows, fit_covariance
from costmodel.measured.predict import constants_of_run, regime_of
from costmodel.measured.runs import Run
from costmodel.question.profile_parts import FirstToken

Array = NDArray[np.float64]


def known_of(problem: Problem, fitted: Fitted, first_token: dict[str, FirstToken]) -> Known:
    """Covariances by chip and engine, and what deployments add."""
    structure = fitted.structure
    runs = problem.runs
    levels = structure.levels([run.chip for run in runs], [run.row.engine for run in runs])
    errors = own_errors(problem)
    scales = np.vstack([structure.scales(fitted.x, levels), np.zeros(len(runs))])
    own_sd, row_sd = deviations(
        errors.at(scales),
        errors.slopes(scales),
        _together(deployment_of(run) for run in runs),
        np.append(np.full(len(ALL), USUAL), USUAL_PACE),
    )
    covariance, spread = fit_covariance(problem, fitted)
    cells = {
        f"{chip or OTHER} {engine or OTHER}": factor_rows(
            cell_covariance(structure, covariance, spread, chip, engine)
        )
        for chip in (*structure.chips, "")
        for engine in (*structure.engines, "")
    }
    first_sd, first_row_sd = _first_token(problem, fitted, first_token)
    base, factor, share, passes, beside = (rounded(float(sd)) for sd in first_sd)
    return Known(
        parameters=NAMES,
        own_sd=tuple(rounded(float(sd)) for sd in own_sd),
        row_sd=rounded(row_sd),
        first_token_sd=(base, factor, share, passes, beside),
        first_token_row_sd=rounded(first_row_sd),
        cells=cells,
    )


def deployment_of(run: Run) -> tuple[str, str, str]:
    """A model on a chip under an engine."""
    return fold_of(run, "model"), run.chip, run.row.engine


def _first_token(
    problem: Problem, fitted: Fitted, first_token: dict[str, FirstToken]
) -> tuple[Array, float]:
    measured = measured_ttft_s(problem)
    known = np.isfinite(measured)
    load = prefill_loads(problem, fitted).of(known)
    runs = [run for run, good in zip(problem.runs, known, strict=True) if good]
    at = np.stack([logarithms(constants_of_run(run, first_token)) for run in runs], axis=1)
    return deviations(
        log_errors(load, measured[known], at),
        log_slopes(load, measured[known], at),
        _together((*deployment_of(run), regime_of(run.row)) for run in runs),
    )


def _together(labels: Iterable[Hashable]) -> list[NDArray[np.intp]]:
    """Places of equal labels, in the order of their first."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for place, label in enumerate(labels):
        found[label].append(place)
    return [np.array(places, dtype=np.intp) for places in found.values()]
