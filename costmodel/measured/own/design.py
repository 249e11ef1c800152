"""Which runs tell most about a choice between layouts: a linear design with normally distributed parameters.

Parameters have covariance ``C``; the log of a run's time has slopes ``J`` and scatter ``s``, the log of a layout's cost
slopes ``L``. Runs ``S`` explain ``G = L C J_S' (J_S C J_S' + s^2 I)^-1 J_S C L'`` of the costs' covariance.
*Gain:* what is saved on average by choosing after the runs, ``min m - E min(m + g)`` with ``g ~ N(0, G)`` and the logs ``m``
of the costs as known now [Raiffa, Schlaifer 1961]. Runs are added one by one, each the best beside those before.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: draws of what runs may tell, the same for every set of runs
_DRAWS = 4096
#: gains as shares of the cost that count as alike: the run that shrinks the interval most is taken then
_ALIKE = 5e-4


@dataclass(frozen=True)
class Question:
    """``costs [layouts]``: logs; ``layouts [layouts, parameters]``, ``runs [runs, parameters]``: slopes of logs."""

    covariance: Array
    row_sd: float
    costs: Array
    layouts: Array
    runs: Array

    def explained(self, chosen: list[int]) -> Array:
        """Covariance ``[layouts, layouts]`` of the costs that the chosen runs explain."""
        slopes = self.runs[chosen]
        across = slopes @ self.covariance @ self.layouts.T
        seen = slopes @ self.covariance @ slopes.T + self.row_sd**2 * np.eye(len(chosen))
        return np.asarray(across.T @ np.linalg.solve(seen, across))

    def gain(self, explained: Array) -> float:
        """Expected saving as a share of the cost; see the module."""
        values, vectors = np.linalg.eigh(explained)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        draws = np.random.default_rng(0).standard_normal((_DRAWS, len(root)))
        draws = np.concatenate([draws, -draws]) @ root.T
        return float(self.costs.min() - (self.costs + draws).min(axis=1).mean())

    def answer_sd(self, explained: Array) -> float:
        """What stays open of the log of the best layout's cost."""
        best = int(np.argmin(self.costs))
        slopes = self.layouts[best]
        left = float(slopes @ self.covariance @ slopes - explained[best, best])
        return float(np.sqrt(max(0.0, left)))

    def open_pairs(self) -> Array:
        """Chance that the order of two layouts' costs is other than it seems ``[layouts, layouts]``."""
        spread = self.layouts @ self.covariance @ self.layouts.T
        own = np.diag(spread)
        sd = np.sqrt(np.maximum(own[:, None] + own - 2.0 * spread, 1e-18))
        apart = np.abs(self.costs[:, None] - self.costs) / sd
        return np.asarray(np.vectorize(lambda z: 0.5 * erfc(z / np.sqrt(2.0)))(apart))


@dataclass(frozen=True)
class Pick:
    """A run beside those before: the expected saving and what stays open of the answer's cost with all of them."""

    run: int
    gain: float
    answer_sd: float


def choose(question: Question, count: int) -> list[Pick]:
    """The best runs one after the other; a run may be worth repeating."""
    chosen: list[int] = []
    picks = []
    for _ in range(count):
        tried = []
        for run in range(len(question.runs)):
            explained = question.explained([*chosen, run])
            tried.append(Pick(run, question.gain(explained), question.answer_sd(explained)))
        most = max(one.gain for one in tried)
        best = min((one for one in tried if one.gain >= most - _ALIKE), key=lambda o: o.answer_sd)
        chosen.append(best.run)
        picks.append(best)
    return picks
