"""One's own runs move the shipped parameters of their chip and engine as far as they can tell.

Each chip with an engine is a cell: its parameters and its pace start normally distributed around the shipped values
(:mod:`costmodel.measured.own.prior`), its runs update them. What predicts a first token follows, for each way in
which requests come to prefill, where it predicts runs that were left out better. Errors are cross-validated: no run is predicted by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.fit import measured_ttft_s, problem_of
from costmodel.measured.fitting.parameters import constants_at
from costmodel.measured.own import first_token
from costmodel.measured.own.pace import own_errors, own_values
from costmodel.measured.own.prior import Known, Prior, prior_of
from costmodel.measured.own.update import Belief, update
from costmodel.measured.predict import (
    Prediction,
    Pricing,
    constants_of_run,
    owners,
    predict,
    predict_under,
    prefill_load,
    regime_of,
)
from costmodel.measured.rows import MeasuredRow, Skipped
from costmodel.measured.runs import Run
from costmodel.measured.scores import Score, scorable, score
from costmodel.question.profile import Profile
from costmodel.question.profile_parts import FirstToken

Array = NDArray[np.float64]
#: parts of the cross-validation
FOLDS = 10


@dataclass(frozen=True)
class Cell:
    """A chip with an engine before and after its runs; ``first_token`` by key of the profile."""

    prior: Prior
    after: Belief
    first_token: dict[str, FirstToken]

    def pricing(self) -> Pricing:
        """Pricing of runs of this chip and engine."""
        return pricing_at(self.after.mean)

    def told(self) -> Array:
        """By how much of its variance each parameter is better known than before (0 to 1)."""
        return 1.0 - np.diag(self.after.covariance) / np.diag(self.prior.covariance)


def pricing_at(scales: Array) -> Pricing:
    """Pricing at unknowns ``[unknowns]``."""
    values = own_values(scales[:, None])
    return lambda owner: constants_at(values, np.zeros_like(owner))


@dataclass(frozen=True)
class OwnCalibration:
    """Cells, the runs they rest on, and predictions of every run under the former profile and by the other runs.

    Errors are ``None`` where fewer than two runs leave nothing to predict from.
    """

    cells: tuple[Cell, ...]
    runs: tuple[Run, ...]
    unsupported: tuple[Skipped, ...]
    before: Prediction
    after: Prediction | None

    def tpot(self) -> tuple[Score | None, Score | None]:
        """Errors of TPOT before, and after by cross-validation, over the same runs."""
        measured = np.array([run.row.tpot_s for run in self.runs])
        return self._scores("tpot_s", measured)

    def ttft(self) -> tuple[Score | None, Score | None]:
        """The same of TTFT, over the runs that measured it."""
        measured = [np.nan if run.row.ttft_s is None else run.row.ttft_s for run in self.runs]
        return self._scores("ttft_s", np.array(measured))

    def _scores(self, figure: str, measured: Array) -> tuple[Score | None, Score | None]:
        before = getattr(self.before, figure)
        after = None if self.after is None else getattr(self.after, figure)
        scored = np.isfinite(measured) & (True if after is None else np.isfinite(after))
        return score(before[scored], measured[scored]), (
            None if after is None else score(after[scored], measured[scored])
        )


def calibrate_own(
    rows: Sequence[MeasuredRow],
    skipped: Sequence[Skipped],
    profile: Profile,
    known: Known,
    *,
    noise: float | None = None,
) -> OwnCalibration:
    """Update a profile by rows; ``noise``: relative scatter of a measured TPOT, found from the rows if ``None``.

    Raises ``InstanceError`` where no row can be used.
    """
    runs, unsupported = scorable(rows, skipped)
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, run in enumerate(runs):
        places[run.chip, run.row.engine].append(place)
    cells = []
    after = Prediction(*(np.full(len(runs), np.nan) for _ in range(4)))
    for key in sorted(places):
        mine = [runs[place] for place in places[key]]
        cell, found = calibrate_cell(
            prior_of(known, profile, *key), mine, profile, known, noise=noise
        )
        cells.append(cell)
        if found is not None:
            for into, figures in zip(vars(after).values(), vars(found).values(), strict=True):
                into[places[key]] = figures
    alone = all(len(mine) < 2 for mine in places.values())
    return OwnCalibration(
        tuple(cells), runs, unsupported, predict_under(runs, profile), None if alone else after
    )


def calibrate_cell(
    prior: Prior,
    runs: Sequence[Run],
    profile: Profile,
    known: Known,
    *,
    noise: float | None = None,
) -> tuple[Cell, Prediction | None]:
    """The cell after its runs, and every run as the others predict it (``None``: there are no others).

    Constants of the first token are the own ones where these predict runs that were left out better.
    """
    cell = update_cell(prior, runs, profile, known, noise=noise)
    if len(runs) < 2:
        return replace(cell, first_token={}), None
    shipped, own = (Prediction(*(np.full(len(runs), np.nan) for _ in range(4))) for _ in range(2))
    for out in _folds(len(runs)):
        rest = [run for place, run in enumerate(runs) if place not in out]
        held = [runs[place] for place in sorted(out)]
        fold = update_cell(prior, rest, profile, known, noise=noise, start=cell.after)
        for into, constants in ((shipped, {}), (own, fold.first_token)):
            found = predict(held, fold.pricing(), {**profile.first_token, **constants})
            for whole, figures in zip(vars(into).values(), vars(found).values(), strict=True):
                whole[sorted(out)] = figures
    measured = np.array([np.nan if r.row.ttft_s is None else r.row.ttft_s for r in runs])
    known_ttft = np.isfinite(measured)
    was, now = (score(one.ttft_s[known_ttft], measured[known_ttft]) for one in (shipped, own))
    if was is None or now is None or now.mape < was.mape:
        return cell, own
    return replace(cell, first_token={}), shipped


def _folds(runs: int) -> list[set[int]]:
    """Places that are left out together: each run alone, in ten parts where there are more."""
    parts = min(runs, FOLDS)
    return [set(range(part, runs, parts)) for part in range(parts)]


def update_cell(
    prior: Prior,
    runs: Sequence[Run],
    profile: Profile,
    known: Known,
    *,
    noise: float | None = None,
    start: Belief | None = None,
) -> Cell:
    """The cell after its runs (the shipped one without any); ``start``: where the search begins, near the answer.

    *Formula:* ``1 - (s / r)^3`` of the way to the most likely values, with the runs' root mean square ``r`` off the shipped
    constants and the scatter ``s`` of runs; nothing where ``r`` is no more. *Source:* positive-part shrinkage (James and Stein
    1961, Baranchik 1964), with the square there: what fits noise would make good constants worse. The cube keeps more of
    what few runs say of which layout is better; one trial of 600 of ``benchmarks.calibration recovery`` doubles its error, as with the square.
    """
    before = Belief(prior.mean, prior.covariance, known.row_sd)
    if not runs:
        return Cell(prior, before, {})
    some, which = _distinct(runs)
    errors = own_errors(problem_of(some, pricing_at(prior.mean)))
    # runs of one deployment are priced once; each has its own measured time
    measured = np.log([run.row.tpot_s for run in runs])
    shift = np.log([run.row.tpot_s for run in some])[which] - measured
    after = update(
        before,
        lambda x: errors.at(_alike(x, len(some)))[which] + shift,
        lambda x: errors.slopes(_alike(x, len(some))).T[which],
        noise=noise,
        start=start,
    )
    off = errors.at(_alike(prior.mean, len(some)))[which] + shift
    scatter = before.row_sd if noise is None else noise
    told = max(0.0, 1.0 - (scatter**2 / max(float(np.mean(off**2)), 1e-12)) ** 1.5)
    after = replace(after, mean=prior.mean + told * (after.mean - prior.mean))
    return Cell(prior, after, _first_tokens(runs, pricing_at(after.mean), profile, known))


def _first_tokens(
    runs: Sequence[Run], pricing: Pricing, profile: Profile, known: Known
) -> dict[str, FirstToken]:
    """Constants of the first token by engine and regime, of the runs that measured TTFT."""
    regimes: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.row.ttft_s is not None:
            regimes[f"{run.row.engine} {regime_of(run.row)}"].append(run)
    return {
        key: _first_token(some, pricing, profile, known) for key, some in sorted(regimes.items())
    }


def _first_token(
    runs: Sequence[Run], pricing: Pricing, profile: Profile, known: Known
) -> FirstToken:
    problem = problem_of(runs, pricing)
    seconds = problem.table.terms.seconds(pricing(owners(problem.table)))
    load = prefill_load(runs, problem.table, seconds, pricing)
    measured = measured_ttft_s(problem)
    start = first_token.logarithms(constants_of_run(runs[0], profile.first_token))
    after = update(
        Belief(start, np.diag(np.square(known.first_token_sd)), known.first_token_row_sd),
        lambda x: first_token.log_errors(load, measured, _alike(x, len(runs))),
        lambda x: first_token.log_slopes(load, measured, _alike(x, len(runs))).T,
    )
    return first_token.constants(after.mean)


def _distinct(runs: Sequence[Run]) -> tuple[list[Run], NDArray[np.intp]]:
    """One run of each deployment and load, and the place ``[runs]`` there of every run's."""
    places: dict[MeasuredRow, int] = {}
    some: list[Run] = []
    which: list[int] = []
    for run in runs:
        asked = replace(run.row, id="", tpot_s=1.0, ttft_s=None, percentiles=())
        if asked not in places:
            places[asked] = len(some)
            some.append(run)
        which.append(places[asked])
    return some, np.array(which, dtype=np.intp)


def _alike(unknowns: Array, runs: int) -> Array:
    """The same unknowns for every run ``[unknowns, runs]``."""
    return np.repeat(unknowns[:, None], runs, axis=1)
