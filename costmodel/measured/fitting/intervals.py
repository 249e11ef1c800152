"""How well the fitted parameters are known: 90 % intervals from the curvature at the optimum.

*Formula:* the covariance of the unknowns is ``s^2 (J^T J)^-1`` with the robust residual scale ``s``; an
interval on the unbounded scale maps to the limits. The ridge counts as a measurement.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.fit import Fitted, Problem, linearised
from costmodel.measured.fitting.parameters import BY_CELL, COMMON, values_at

Array = NDArray[np.float64]
#: standard normal quantile of a 90 % interval
NINETY = 1.645


def row_spread(residuals: Array, rows: int) -> float:
    """Robust standard deviation of the first ``rows`` residuals."""
    return 1.4826 * float(np.median(np.abs(residuals[:rows])))


def parameter_intervals(
    problem: Problem, fitted: Fitted
) -> dict[tuple[str, str], dict[str, tuple[float, float, float]]]:
    """Low, value and high of every parameter by chip and engine that have rows."""
    residuals, jacobian = linearised(problem, fitted)
    spread = row_spread(residuals, len(problem.runs))
    covariance = spread**2 * np.linalg.pinv(jacobian.T @ jacobian)
    structure = fitted.structure
    names = [p.name for p in (*COMMON, *BY_CELL)]
    found: dict[tuple[str, str], dict[str, tuple[float, float, float]]] = {}
    for chip, engine in sorted({(run.chip, run.row.engine) for run in problem.runs}):
        levels = structure.levels([chip], [engine])
        scales = structure.scales(fitted.x, levels)
        width = np.zeros_like(scales)
        for place in range(len(names)):
            slopes = np.zeros_like(scales)
            slopes[place] = 1.0
            gradient = structure.chain(slopes, levels)[0]
            width[place] = np.sqrt(max(0.0, float(gradient @ covariance @ gradient)))
        low, value, high = (values_at(scales + sign * NINETY * width) for sign in (-1.0, 0.0, 1.0))
        found[chip, engine] = {
            name: (float(low[name][0]), float(value[name][0]), float(high[name][0]))
            for name in names
        }
    return found
