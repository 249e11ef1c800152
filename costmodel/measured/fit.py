"""The fit: robust least squares on the logarithm of predicted over measured TPOT.

Every row counts alike within its model, chip and engine, and such groups by the root of their size,
so that a long sweep of one model does not drown the rest. The loss is linear for large residuals
(mislabelled rows). Needs scipy (``pip install rackfit[calibrate]``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.parameters import Structure, constants_at, values_at
from costmodel.measured.predict import (
    Pricing,
    decode_batches,
    owners,
    predict_table,
    wave_shares,
)
from costmodel.measured.runs import Run, RunTable, run_table
from costmodel.measured.terms import Constants
from topology.errors import InstanceError

Array = NDArray[np.float64]

#: log error beyond which the loss grows linearly
_ROBUST_AT = 0.15
#: weight of an addition of one unit on the logit scale, in units of a row's log error
_RIDGE = 0.3
_MOST_STEPS = 25
#: step of the numerical derivative on the logit scale
_STEP = 1e-4


@dataclass(frozen=True)
class Fitted:
    """Unknowns at the optimum, and the structure they belong to."""

    structure: Structure
    x: Array

    def values(self, runs: Sequence[Run]) -> dict[str, Array]:
        """Parameter values of runs."""
        return self.structure.cells(
            self.x, [run.chip for run in runs], [run.row.engine for run in runs]
        )

    def pricing(self, runs: Sequence[Run]) -> Pricing:
        """Pricing of runs, also on chips and engines that were not fitted."""
        values = self.values(runs)
        return lambda owner: constants_at(values, owner)


@dataclass(frozen=True)
class Problem:
    """Rows to fit with their passes at given batches."""

    runs: Sequence[Run]
    table: RunTable
    batches: Array
    measured_s: Array
    weights: Array


def start_of(runs: Sequence[Run]) -> Fitted:
    """The structure of these runs at its start."""
    structure = Structure(
        tuple(sorted({run.chip for run in runs})),
        tuple(sorted({run.row.engine for run in runs})),
        tuple(sorted({(run.chip, run.row.engine) for run in runs})),
    )
    return Fitted(structure, structure.start())


def problem_of(runs: Sequence[Run], pricing: Pricing) -> Problem:
    """A problem whose batches follow from some pricing."""
    batches = decode_batches(runs, pricing)
    keys = [(run.instance.model.name, run.chip, run.row.engine) for run in runs]
    sizes = Counter(keys)
    weights = np.array([sizes[key] ** -0.5 for key in keys])
    return Problem(
        runs=runs,
        table=run_table(runs, batches),
        batches=batches,
        measured_s=np.array([run.row.tpot_s for run in runs]),
        weights=weights / weights.mean(),
    )


def fit(problem: Problem, chosen: NDArray[np.bool_] | None = None) -> Fitted:
    """Fit the chosen rows (all by default)."""
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise InstanceError("calibration needs scipy: pip install 'rackfit[calibrate]'") from None

    keep = np.ones(len(problem.runs), dtype=bool) if chosen is None else chosen
    kept = [run for run, good in zip(problem.runs, keep, strict=True) if good]
    start = start_of(kept)
    structure = start.structure
    chips = [run.chip for run in problem.runs]
    engines = [run.row.engine for run in problem.runs]
    owner = owners(problem.table)
    shares = wave_shares(problem.runs)
    table = problem.table
    scale = np.sqrt(problem.weights[keep])

    levels = structure.levels(chips, engines)
    num_common = structure.size - structure.additions(start.x).size

    def log_error(scales: Array) -> Array:
        found = table.terms.seconds(constants_at(values_at(scales), owner))
        tpot = found[table.decode] + shares * table.events * table.prefill_s(found)
        return np.asarray(np.log(tpot / problem.measured_s))

    def residuals(x: Array) -> Array:
        rows = scale * log_error(structure.scales(x, levels))[keep]
        return np.concatenate([rows, _RIDGE * structure.additions(x)])

    def jacobian(x: Array) -> Array:
        scales = structure.scales(x, levels)
        here = log_error(scales)
        slopes = np.zeros_like(scales)
        for place in range(len(scales)):
            moved = scales.copy()
            moved[place] += _STEP
            slopes[place] = (log_error(moved) - here) / _STEP
        rows = scale[:, None] * structure.chain(slopes, levels)[keep]
        held = np.hstack(
            [np.zeros((x.size - num_common, num_common)), _RIDGE * np.eye(x.size - num_common)]
        )
        return np.vstack([rows, held])

    solution = least_squares(
        residuals, start.x, jac=jacobian, loss="soft_l1", f_scale=_ROBUST_AT, max_nfev=_MOST_STEPS,
        xtol=1e-5, ftol=1e-5, gtol=1e-8,
    )  # fmt: skip
    return Fitted(structure, np.asarray(solution.x))


def predicted_tpot_s(problem: Problem, fitted: Fitted) -> Array:
    """TPOT of all the problem's rows under a fit, at the problem's batches."""
    constants: Constants = fitted.pricing(problem.runs)(owners(problem.table))
    found = problem.table.terms.seconds(constants)
    return predict_table(problem.runs, problem.table, found, problem.batches).tpot_s
