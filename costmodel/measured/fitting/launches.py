"""Releases whose host launches kernels more slowly than the chips run them.

A pass whose kernels are launched one by one (no graph of its batch) takes no less than its kernels times the host's seconds
for each, whatever it computes: its time then follows the number of layers and neither load nor chips. Rows name the
release of their engine; what one release adds is fitted after everything else, on all its rows alike.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.fit import ROBUST_AT, Fitted, Problem
from costmodel.measured.fitting.parameters import rounded
from costmodel.measured.predict import owners, wave_shares
from costmodel.measured.runs import Run

Array = NDArray[np.float64]


def architecture_of(run: Run) -> str:
    """What all precisions and names of a run's model share."""
    spec = run.instance.model
    return f"{spec.family} {len(spec.layers)} layers of {spec.hidden_size}"


def fit_launches(
    problem: Problem, fitted: Fitted, chosen: NDArray[np.bool_] | None = None
) -> dict[str, float]:
    """Seconds for each kernel by release (``MeasuredRow.release``), from the chosen rows of several users.

    *Formula:* of the seconds at which one row is met exactly, those with the least mean loss, each model counted alike. The
    loss is that of the fit, a negative log-likelihood. A release has such seconds only where it served several models and
    each of them alone pays for one parameter more: it gains over half the logarithm of the release's rows (Schwarz).
    """
    keep = np.ones(len(problem.runs), dtype=bool) if chosen is None else chosen
    keep = keep & np.array([run.row.concurrency > 1 for run in problem.runs])
    releases = np.array([run.row.release for run in problem.runs])
    models = np.array([architecture_of(run) for run in problem.runs])
    found = {}
    passes = _Passes(problem, fitted)
    for release in sorted(set(releases[keep]) - {""}):
        here = np.flatnonzero(keep & (releases == release))
        seconds = _seconds(passes, here, models[here])
        if seconds:
            found[str(release)] = rounded(seconds)
    return found


class _Passes:
    """Decode and prefill passes of a problem's runs under a fit."""

    def __init__(self, problem: Problem, fitted: Fitted):
        table = problem.table
        seconds = table.terms.seconds(fitted.pricing(problem.runs)(owners(table)))
        _, kernels, *_ = table.terms.counts
        self.kernels, self.prefill_kernels = kernels[table.decode], kernels[table.prefill]
        self.decode_s, self.prefill_s = seconds[table.decode], seconds[table.prefill]
        self.events = table.repeats * table.events * wave_shares(problem.runs, problem.batches)
        self.measured_s = problem.measured_s

    def loss(self, here: NDArray[np.intp], launch_s: float) -> Array:
        """Loss of the rows ``here`` where each kernel takes the host ``launch_s``."""
        decode = np.maximum(self.decode_s[here], launch_s * self.kernels[here])
        prefill = np.maximum(self.prefill_s[here], launch_s * self.prefill_kernels[here])
        errors = np.log((decode + self.events[here] * prefill) / self.measured_s[here])
        return np.asarray(np.log1p((errors / ROBUST_AT) ** 2))


def _seconds(passes: _Passes, here: NDArray[np.intp], models: NDArray[np.str_]) -> float:
    """Seconds for each kernel of one release's rows, 0 where its models do not agree on any."""
    names = sorted(set(models.tolist()))
    if len(names) < 2:
        return 0.0
    without = passes.loss(here, 0.0)
    best = (0.0, 0.0)
    for launch_s in np.unique(passes.measured_s[here] / passes.kernels[here]):
        gains = without - passes.loss(here, float(launch_s))
        if min(gains[models == name].sum() for name in names) > 0.5 * log(len(here)):
            mean = float(np.mean([gains[models == name].mean() for name in names]))
            best = max(best, (mean, float(launch_s)))
    return best[1]
