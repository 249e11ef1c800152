"""The fit: robust least squares on the logarithm of predicted over measured TPOT.

Every row counts alike. The loss of a row is Cauchy's, so that rows which contradict the rest (other engine
settings than stated) hardly pull; a quadratic ridge holds what chips and engines add near zero. Scale and
ridge were chosen by the errors of left-out models and systems. Needs scipy (``pip install rackfit[calibrate]``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.parameters import Structure, constants_at, values_at
from costmodel.measured.fitting.terms import Constants
from costmodel.measured.predict import (
    PrefillLoad,
    Pricing,
    decode_batches,
    owners,
    prefill_load,
    tpot_s,
    wave_shares,
)
from costmodel.measured.runs import Run, RunTable, run_table
from topology.errors import InstanceError

Array = NDArray[np.float64]

#: log error beyond which a row pulls less the farther off it is
ROBUST_AT = 0.1
#: weight of an addition of one unit on the logit scale, in units of a row's log error
RIDGE = 2.0
_MOST_STEPS = 40
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
            self.x, [run.chip for run in runs], [run.priced_as for run in runs]
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


def start_of(runs: Sequence[Run]) -> Fitted:
    """The structure of these runs at its start."""
    structure = Structure(
        tuple(sorted({run.chip for run in runs})),
        tuple(sorted({run.row.engine for run in runs})),
    )
    return Fitted(structure, structure.start())


def problem_of(runs: Sequence[Run], pricing: Pricing) -> Problem:
    """A problem whose batches follow from some pricing."""
    batches = decode_batches(runs, pricing)
    return Problem(
        runs=runs,
        table=run_table(runs, batches),
        batches=batches,
        measured_s=np.array([run.row.tpot_s for run in runs]),
    )


class LogErrors:
    """Logarithm of predicted over measured TPOT of a problem's rows, from parameters on the unbounded scale.

    ``values``: of the parameters at those scales.
    """

    def __init__(self, problem: Problem, values: Callable[[Array], dict[str, Array]] = values_at):
        self.problem = problem
        self.values = values
        self.owner = owners(problem.table)
        self.shares = wave_shares(problem.runs, problem.batches)

    def at(self, scales: Array) -> Array:
        """Of every row ``[rows]`` at ``scales [parameters, rows]``."""
        table = self.problem.table
        found = table.terms.seconds(constants_at(self.values(scales), self.owner))
        tpot = found[table.decode] + self.shares * table.events * table.prefill_s(found)
        return np.asarray(np.log(tpot / self.problem.measured_s))

    def slopes(self, scales: Array) -> Array:
        """Derivatives ``[parameters, rows]`` by the parameters of each row (numerical)."""
        here = self.at(scales)
        slopes = np.zeros_like(scales)
        for place in range(len(scales)):
            moved = scales.copy()
            moved[place] += _STEP
            slopes[place] = (self.at(moved) - here) / _STEP
        return slopes


class _System:
    """Residuals and Jacobian of a problem's chosen rows, the ridge's rows last."""

    def __init__(self, problem: Problem, structure: Structure, keep: NDArray[np.bool_]):
        self.errors = LogErrors(problem)
        self.structure = structure
        self.keep = keep
        self.levels = structure.levels(
            [run.chip for run in problem.runs], [run.row.engine for run in problem.runs]
        )
        self.held = structure.held_places()

    def residuals(self, x: Array) -> Array:
        """Log errors, then the ridge."""
        rows = self.errors.at(self.structure.scales(x, self.levels))[self.keep]
        return np.concatenate([rows, RIDGE * self.structure.held(x)])

    def jacobian(self, x: Array) -> Array:
        """Slopes by parameter, spread over the unknowns that add up to it."""
        slopes = self.errors.slopes(self.structure.scales(x, self.levels))
        rows = self.structure.chain(slopes, self.levels)[self.keep]
        ridge = RIDGE * self.structure.stiffness()[:, None] * np.eye(x.size)[self.held]
        return np.vstack([rows, ridge])


def row_loss(rows: int, weights: Array | None = None) -> Callable[[Array], Array]:
    """Cauchy's loss of the first ``rows`` squared residuals, each times its weight; the square itself of the ridge's."""
    counted = np.ones(rows) if weights is None else weights

    def loss(squares: Array) -> Array:
        found = np.stack([squares, np.ones_like(squares), np.zeros_like(squares)])
        far = 1.0 + squares[:rows]
        found[:, :rows] = counted * np.log(far), counted / far, -counted / far**2
        return found

    return loss


def least_squares_solver() -> Callable[..., Any]:
    """scipy's least squares. Raises ``InstanceError`` where scipy is not installed."""
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise InstanceError("calibration needs scipy: pip install 'rackfit[calibrate]'") from None
    solver: Callable[..., Any] = least_squares
    return solver


def fit(
    problem: Problem,
    chosen: NDArray[np.bool_] | None = None,
    weights: Array | None = None,
    near: Fitted | None = None,
) -> Fitted:
    """Fit the chosen rows (all by default), each counted ``weights [rows]`` times (once by default).

    ``near``: another fit to start from.
    """
    keep = np.ones(len(problem.runs), dtype=bool) if chosen is None else chosen
    start = start_of([run for run, good in zip(problem.runs, keep, strict=True) if good])
    if near is not None:
        start = Fitted(start.structure, near.structure.moved_to(start.structure, near.x))
    system = _System(problem, start.structure, keep)
    solution = least_squares_solver()(
        system.residuals, start.x, jac=system.jacobian,
        loss=row_loss(int(keep.sum()), None if weights is None else weights[keep]),
        f_scale=ROBUST_AT,
        max_nfev=_MOST_STEPS, xtol=1e-5, ftol=1e-5, gtol=1e-8,
    )  # fmt: skip
    return Fitted(start.structure, np.asarray(solution.x))


def linearised(problem: Problem, fitted: Fitted) -> tuple[Array, Array]:
    """Residuals and Jacobian of all rows at a fit, the ridge's rows last."""
    system = _System(problem, fitted.structure, np.ones(len(problem.runs), dtype=bool))
    return system.residuals(fitted.x), system.jacobian(fitted.x)


def predicted_tpot_s(problem: Problem, fitted: Fitted) -> Array:
    """TPOT of all the problem's rows under a fit, at the problem's batches."""
    constants: Constants = fitted.pricing(problem.runs)(owners(problem.table))
    found = problem.table.terms.seconds(constants)
    return tpot_s(problem.runs, problem.table, found)


def prefill_loads(problem: Problem, fitted: Fitted) -> PrefillLoad:
    """Seconds of prefill that each row's first token waits for, under a fit."""
    pricing = fitted.pricing(problem.runs)
    seconds = problem.table.terms.seconds(pricing(owners(problem.table)))
    return prefill_load(problem.runs, problem.table, seconds, pricing)


def measured_ttft_s(problem: Problem) -> Array:
    """Measured TTFT of all rows, NaN where there is none."""
    return np.array([np.nan if r.row.ttft_s is None else r.row.ttft_s for r in problem.runs])
