"""Errors on what was left out: every model, every system and every engine in turn.

The profile that predicts a row never saw another row of the same model (system, engine).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.first_token import fit_first_token
from costmodel.measured.fitting.fit import Problem, measured_ttft_s
from costmodel.measured.fitting.launches import architecture_of, fit_launches
from costmodel.measured.fitting.waves import fit_of_waves
from costmodel.measured.predict import launched, predict, scattered
from costmodel.measured.runs import Run
from costmodel.measured.scores import Score, score

Array = NDArray[np.float64]
_BALANCE = {True: "balanced", False: "not balanced", None: "unknown"}
FOLDS = ("model", "system", "engine")


def fold_of(run: Run, key: str) -> str:
    """What is left out together: all precisions and names of an architecture are one model."""
    if key == "model":
        return architecture_of(run)
    return run.chip if key == "system" else run.row.engine


@dataclass(frozen=True)
class LeftOut:
    """Predictions ``[rows]`` of a problem's rows, each by a fit without its fold.

    ``ttft_s`` is the mean under the row's load, ``steady_ttft_s`` that of evenly spaced arrivals.
    """

    key: str
    folds: tuple[str, ...]
    tpot_s: Array
    ttft_s: Array
    steady_ttft_s: Array
    fold_of_row: tuple[str, ...]

    def score(self, problem: Problem) -> Score:
        """Over all rows."""
        found = score(self.tpot_s, problem.measured_s)
        assert found is not None
        return found

    def first_token(
        self, problem: Problem, chosen: NDArray[np.bool_] | None = None
    ) -> Score | None:
        """TTFT over the (chosen) rows that measured it; ``None`` if none did."""
        measured = measured_ttft_s(problem)
        known = np.isfinite(measured) if chosen is None else np.isfinite(measured) & chosen
        return score(self.ttft_s[known], measured[known])

    def capacity(self, problem: Problem, chosen: NDArray[np.bool_] | None = None) -> Score | None:
        """Requests per second at the row's users, over the (chosen) rows that measured TTFT; ``None`` if none did."""
        found, measured = request_s(problem, self.tpot_s, self.ttft_s)
        known = np.isfinite(measured) if chosen is None else np.isfinite(measured) & chosen
        # users over the seconds of a request is a rate
        return score(1.0 / found[known], 1.0 / measured[known])

    def by_balance(self, problem: Problem) -> dict[str, Score]:
        """TPOT of runs with whole experts on chips, by whether their recipe balanced them."""
        groups = [run.row.decode for run in problem.runs]
        labels = np.array(
            [_BALANCE[one.settings.balanced] if one.expert_ways > 1 else "" for one in groups]
        )
        found = {}
        for name in _BALANCE.values():
            one = score(self.tpot_s[labels == name], problem.measured_s[labels == name])
            if one is not None:
                found[name] = one
        return found

    def by_fold(self, problem: Problem) -> dict[str, Score]:
        """Fold by fold."""
        labels = np.array(self.fold_of_row)
        result = {}
        for name in self.folds:
            one = score(self.tpot_s[labels == name], problem.measured_s[labels == name])
            assert one is not None
            result[name] = one
        return result


def request_s(problem: Problem, tpot_s: Array, ttft_s: Array) -> tuple[Array, Array]:
    """Seconds of a whole request of every row, predicted and measured (NaN without a measured TTFT)."""
    tokens = np.array([run.row.output_tokens for run in problem.runs])
    return ttft_s + tokens * tpot_s, measured_ttft_s(problem) + tokens * problem.measured_s


def waits(problem: Problem) -> NDArray[np.bool_]:
    """Rows whose first token took over 30 % of the request."""
    _, whole = request_s(problem, problem.measured_s, problem.measured_s)
    return np.asarray(measured_ttft_s(problem) > 0.3 * whole)


def leave_out(problem: Problem, key: str) -> LeftOut:
    """Fit without each fold of ``key`` (``model``, ``system`` or ``engine``) and predict it."""
    return predict_left_out(problem, key, problem.runs)


def predict_left_out(problem: Problem, key: str, runs: Sequence[Run]) -> LeftOut:
    """Predict any runs, each by a fit of those of the problem's runs that are not in its fold."""
    labels = np.array([fold_of(run, key) for run in runs])
    fitted_on = np.array([fold_of(run, key) for run in problem.runs])
    names = tuple(sorted(set(labels.tolist())))
    tpot, ttft, steady = (np.zeros(len(labels)) for _ in range(3))
    for name in names:
        out = labels == name
        kept = fitted_on != name
        # one fold alone: nothing else to fit, so that it is in sample
        kept = kept if kept.any() else ~kept
        seen, fitted, releases = fit_of_waves(problem, kept)
        first_token = fit_first_token(seen, fitted, kept)
        chosen = [run for run, here in zip(runs, out, strict=True) if here]
        chosen = scattered(chosen, releases)
        pricing = launched(fitted.pricing(chosen), chosen, fit_launches(seen, fitted, kept))
        found = predict(chosen, pricing, first_token)
        tpot[out], ttft[out], steady[out] = found.tpot_s, found.ttft_s, found.steady_ttft_s
    return LeftOut(key, names, tpot, ttft, steady, tuple(labels.tolist()))


def error_quantiles(found: Sequence[LeftOut], problem: Problem) -> tuple[float, float, float]:
    """Quantiles 0.05, 0.5 and 0.95 of measured over predicted less one, over the left-out rows."""
    ratios = np.concatenate([problem.measured_s / one.tpot_s for one in found]) - 1.0
    low, middle, high = np.quantile(ratios, [0.05, 0.5, 0.95])
    return float(low), float(middle), float(high)
