"""How far the parameters of one deployment lie from those fitted on all: the spread that own runs are met with.

A row's log error at the shipped fit is linear in what its deployment (a model on a chip under an engine) adds to the
parameters, ``e = e0 + J d``; ``d ~ N(0, diag(sd^2))`` is its own for every deployment. Expectation maximisation
gives the spreads and the scatter of rows within a deployment [Dempster, Laird, Rubin 1977]; rows count less the
farther off they are (Student's t). Spreads that few deployments see are held near what is usual.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: spread on the unbounded scale that a parameter has where measurements say nothing of it: of 0.3 to 1 what
#: five runs of a left-out model or system predict the rest best with (0.5 to 1 are alike)
USUAL = 0.5
#: the same of the logarithm of the pace: about what the fit misses a left-out model or system by
USUAL_PACE = 0.1
#: how many deployments what is usual counts for
_WEIGHT = 20.0
#: degrees of freedom of the rows' scatter
_FREEDOM = 2.0
_ROUNDS = 30
#: fewest rows of a deployment that is counted
FEWEST = 5


def deviations(
    errors: Array,
    slopes: Array,
    groups: Sequence[NDArray[np.intp]],
    usual: Array | float = USUAL,
) -> tuple[Array, float]:
    """Spread of every parameter between deployments, and of rows within one.

    ``errors [rows]``: log of predicted over measured; ``slopes [parameters, rows]``: their derivatives; ``groups``:
    rows of each deployment; ``usual``: spread that each parameter is held near.
    """
    held = np.square(np.broadcast_to(usual, len(slopes)))
    groups = [rows for rows in groups if len(rows) >= FEWEST]
    variance = held.copy()
    scatter = 0.05**2
    weights = 1.0 / (1.0 + errors**2 / 0.02)
    for _ in range(_ROUNDS):
        squares = np.zeros(len(slopes))
        total, rows = 0.0, 0
        for group in groups:
            slope = slopes[:, group].T
            weighted = slope.T * (weights[group] / scatter)
            covariance = np.linalg.inv(np.diag(1.0 / variance) + weighted @ slope)
            mean = -covariance @ (weighted @ errors[group])
            left = (errors[group] + slope @ mean) ** 2
            left += np.einsum("ij,jk,ik->i", slope, covariance, slope)
            weights[group] = (_FREEDOM + 1.0) / (_FREEDOM + left / scatter)
            total += float(weights[group] @ left)
            rows += len(group)
            squares += mean**2 + np.diag(covariance)
        scatter = total / rows
        variance = (squares + _WEIGHT * held) / (len(groups) + _WEIGHT)
    return np.sqrt(variance), float(np.sqrt(scatter))
