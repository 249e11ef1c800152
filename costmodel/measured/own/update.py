"""What rows say of normally distributed unknowns: the most likely values, how well they are known, the rows' scatter.

*Formula:* with ``x = m + L z`` the minimum of ``sum rho(e(x)^2 / s^2) + |z|^2``, ``rho`` Cauchy's loss at twice the
scatter ``s``; the covariance is ``L (I + A'wA)^-1 L'`` with the slopes ``A`` in units of ``s`` and the weights ``w``
of the loss. Where rows say nothing, ``x`` stays at ``m``. The scatter is that of earlier rows, which count for
:data:`_WEIGHT`, and of these. Needs scipy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erfc, exp, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.fit import least_squares_solver, row_loss

Array = NDArray[np.float64]
#: rows that the scatter known beforehand counts for
_WEIGHT = 10.0
#: scatters beyond which a row pulls less the farther off it is
_ROBUST_AT = 2.0
#: mean of a weighted square of a normal variable, so that the scatter of normal errors is met
_CONSISTENT = _ROBUST_AT**2 * (
    1.0 - _ROBUST_AT * sqrt(pi / 2.0) * exp(_ROBUST_AT**2 / 2.0) * erfc(_ROBUST_AT / sqrt(2.0))
)
_ROUNDS = 10
#: relative change of the scatter at which it has settled
_SETTLED = 0.03
_MOST_STEPS = 60


@dataclass(frozen=True)
class Belief:
    """A normal distribution of unknowns, and the scatter of log errors of rows around what they predict."""

    mean: Array
    covariance: Array
    row_sd: float

    @property
    def sd(self) -> Array:
        """Standard deviation of each unknown."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))


def update(
    before: Belief,
    errors: Callable[[Array], Array],
    slopes: Callable[[Array], Array],
    *,
    noise: float | None = None,
    start: Belief | None = None,
) -> Belief:
    """The belief after rows with ``errors(x) [rows]`` and ``slopes(x) [rows, unknowns]``; ``noise``: a known scatter.

    ``start``: a belief near the answer, such as that after most of the same rows.
    """
    solve = least_squares_solver()
    factor = np.linalg.cholesky(before.covariance + 1e-12 * np.eye(len(before.mean)))
    identity = np.eye(len(factor))
    known = before.row_sd if noise is None else noise
    z, scatter = np.zeros(len(factor)), known
    if start is not None:
        z = np.linalg.solve(factor, start.mean - before.mean)
        scatter = start.row_sd if noise is None else noise
    for _ in range(_ROUNDS if noise is None else 1):
        at = scatter

        def residuals(z: Array, at: float = at) -> Array:
            return np.concatenate([errors(before.mean + factor @ z) / at, z])

        def jacobian(z: Array, at: float = at) -> Array:
            return np.vstack([slopes(before.mean + factor @ z) @ factor / at, identity])

        rows = len(errors(before.mean))
        z = np.asarray(
            solve(
                residuals, z, jac=jacobian, loss=row_loss(rows), f_scale=_ROBUST_AT,
                max_nfev=_MOST_STEPS, xtol=1e-6, ftol=1e-6, gtol=1e-8,
            ).x
        )  # fmt: skip
        left = residuals(z)[:rows]
        slope = jacobian(z)[:rows]
        weights = 1.0 / (1.0 + (left / _ROBUST_AT) ** 2)
        covariance = np.linalg.inv(identity + (slope.T * weights) @ slope)
        if noise is None:
            squares = left**2 + np.einsum("ij,jk,ik->i", slope, covariance, slope)
            seen = float(weights @ squares) * scatter**2 / _CONSISTENT
            scatter = float(np.sqrt((_WEIGHT * known**2 + seen) / (_WEIGHT + rows)))
            if abs(scatter / at - 1.0) < _SETTLED:
                break
    return Belief(before.mean + factor @ z, factor @ covariance @ factor.T, scatter)
