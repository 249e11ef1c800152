"""Which runs tell most about a choice between layouts, found by trying them on parameters drawn from what is open.

Each draw has the costs of the layouts and the times of the runs, as the cost model gives them, limits and targets included. What is
expected of a cost after runs is linear in the logs of their times: with covariances over the draws and the scatter ``s`` of a
run, ``E[c | y] = mean c + cov(c, y) (cov(y) + s^2 I)^-1 (y - mean y)``.
*Gain:* what is saved on average by choosing after the runs [Raiffa, Schlaifer 1961]. *Right:* how often two layouts are then in
the order that they have in the draw. Runs are added one by one, each the best beside those before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: gains as shares of the cost that count as alike: the run that shrinks the interval most is taken then
_ALIKE = 5e-4


@dataclass(frozen=True)
class Question:
    """``expected [layouts]``: logs of costs as known now; ``costs [draws, layouts]``, ``runs [draws, runs]``: logs of costs and
    of times in each draw; ``row_sd``: scatter of the log of a run's time."""

    expected: Array
    costs: Array
    runs: Array
    row_sd: float

    def _seen(self, chosen: Sequence[int]) -> Array:
        """Logs of measured times ``[draws, chosen]`` less their means: each run has scatter of its own, also if repeated."""
        scatter = np.random.default_rng(0).standard_normal((len(self.runs), len(chosen)))
        runs = self.runs[:, list(chosen)]
        return np.asarray(runs - runs.mean(axis=0) + self.row_sd * scatter)

    @cached_property
    def _covariance(self) -> Array:
        own = self.row_sd**2 * np.eye(self.runs.shape[1])
        return np.asarray(np.atleast_2d(np.cov(self.runs.T)) + own)

    def _told(self, targets: Array) -> Array:
        """Covariance of every run with targets ``[draws, targets]``."""
        runs = self.runs - self.runs.mean(axis=0)
        return np.asarray(runs.T @ (targets - targets.mean(axis=0)) / (len(runs) - 1))

    def after(self, chosen: Sequence[int], targets: Array) -> Array:
        """What is expected of targets ``[draws, targets]`` after the chosen runs."""
        mean = np.broadcast_to(targets.mean(axis=0), targets.shape)
        if not chosen:
            return np.asarray(mean)
        weights = np.linalg.solve(self._between(chosen), self._told(targets)[list(chosen)])
        return np.asarray(mean + self._seen(chosen) @ weights)

    def explained(self, chosen: Sequence[int], targets: Array) -> Array:
        """The variance ``[targets]`` that the chosen runs take from targets."""
        told = self._told(targets)[list(chosen)]
        return np.asarray((told * np.linalg.solve(self._between(chosen), told)).sum(axis=0))

    def _between(self, chosen: Sequence[int]) -> Array:
        # a run that is repeated scatters anew, and is otherwise the same
        same = self._covariance[np.ix_(chosen, chosen)]
        apart = ~np.eye(len(chosen), dtype=bool) & np.equal.outer(chosen, chosen)
        return np.asarray(same - self.row_sd**2 * apart)

    def gain(self, chosen: Sequence[int]) -> float:
        """Expected saving as a share of the cost; see the module."""
        best = np.argmin(self.after(chosen, self.costs), axis=1)
        found = self.costs[np.arange(len(best)), best]
        return float(self.costs.mean(axis=0).min() - found.mean())

    def answer_sd(self, chosen: Sequence[int]) -> float:
        """What stays open of the log of the best layout's cost."""
        best = self.costs[:, [int(np.argmin(self.expected))]]
        left = np.var(best, ddof=1) - (self.explained(chosen, best)[0] if chosen else 0.0)
        return float(np.sqrt(max(0.0, left)))

    def order(self, pair: tuple[int, int]) -> Array:
        """-1 where the first of a pair costs less, else 1 ``[draws, 1]``."""
        first, second = pair
        return np.where(self.costs[:, [first]] < self.costs[:, [second]], -1.0, 1.0)

    def right(self, chosen: Sequence[int], pair: tuple[int, int]) -> float:
        """Share of draws in which the runs put a pair in its order; see the module."""
        order = self.order(pair)
        return float(np.mean(np.sign(self.after(chosen, order)) == order))

    def open_pairs(self) -> Array:
        """Share of draws in which the order of two layouts is other than it seems ``[layouts, layouts]``."""
        seems = np.sign(self.expected[:, None] - self.expected)
        turned = np.sign(self.costs[:, :, None] - self.costs[:, None, :]) * seems < 0
        return np.asarray(turned.mean(axis=0))


@dataclass(frozen=True)
class Pick:
    """A run beside those before: the expected saving, what stays open of the answer's cost with all of them, and how
    often they put the asked pair in its order."""

    run: int
    gain: float
    answer_sd: float
    right: float | None = None


def choose(question: Question, count: int, pair: tuple[int, int] | None = None) -> list[Pick]:
    """The best runs one after the other for the choice among all layouts, or for a pair's order; a run may be worth
    repeating."""
    chosen: list[int] = []
    picks = []
    for _ in range(count):
        sets = [[*chosen, run] for run in range(question.runs.shape[1])]
        if pair is not None:
            # of so few draws the share that is explained says more than how many come out right
            order = question.order(pair)
            sets = [max(sets, key=lambda runs: float(question.explained(runs, order)[0]))]
        else:
            gains = [question.gain(runs) for runs in sets]
            most = max(gains) - _ALIKE
            alike = [runs for runs, gain in zip(sets, gains, strict=True) if gain >= most]
            sets = [min(alike, key=question.answer_sd)]
        chosen = sets[0]
        picks.append(
            Pick(
                chosen[-1],
                question.gain(chosen),
                question.answer_sd(chosen),
                None if pair is None else question.right(chosen, pair),
            )
        )
    return picks
