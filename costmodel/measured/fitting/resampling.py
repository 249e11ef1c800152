r"""How far the fit may be off: parameter sets of resampled measurements, and the scatter that none of them explains.

*Parameters.* Rows of one model, system or engine err alike, so that whole models, systems and engines are resampled:
every row counts ``w_model w_system w_engine`` times, each weight drawn from the exponential distribution of mean 1
(product reweighting: Owen and Eckles, "Bootstrapping data arrays of arbitrary order", Annals of Applied Statistics
6(3), 2012). No chip or engine drops out. Every resample is fitted anew.

*Scatter.* The error of the cost of runs that no fit had seen, each model, system and engine left out in turn, is
wider than what these parameters say. With ``E`` the width from the 5 % to the 95 % quantile of its logarithm and ``P``
that of the resampled predictions around the fit's, what is left is taken as ``sqrt(1 - (P/E)^2)`` of the errors around
their median. World ``i`` of ``n`` has the quantile at ``(i + 1/2) / n``, in an order that is drawn: every time of its
passes is multiplied by it, except that no rate exceeds its peak.

Both come from the measurements given alone, so that what was left out of these is predicted without having been seen.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.crossvalidation import FOLDS, fold_of, request_s
from costmodel.measured.fitting.first_token import fit_first_token
from costmodel.measured.fitting.fit import (
    Fitted,
    Problem,
    fit,
    predicted_tpot_s,
    prefill_loads,
    problem_of,
    start_of,
)
from costmodel.measured.fitting.parameters import rounded
from costmodel.measured.fitting.shipping import profile_of
from costmodel.measured.fitting.waves import fit_of_waves
from costmodel.measured.predict import (
    constants_of_run,
    owners,
    prefill_load,
    profile_pricing,
    scattered,
    tpot_s,
)
from costmodel.measured.runs import Run
from costmodel.question.profile import Efficiency, EngineConstants, Profile
from costmodel.question.profile_parts import FirstToken
from costmodel.worlds.ensemble import COLUMNS, place_of, values_of, with_values

Array = NDArray[np.float64]
#: worlds that are shipped: the least cost of nine in ten is then that of the 22nd, the middle of whose step is 0.896
NUMBER = 24
_SEED = 20260427
_WIDTH = (0.05, 0.95)


def resampled(runs: Sequence[Run], number: int = NUMBER) -> list[Array]:
    """How often each run counts, resample by resample; as many runs in all as there are."""
    random = np.random.default_rng(_SEED)
    labels = [np.unique([fold_of(run, key) for run in runs], return_inverse=True) for key in FOLDS]
    found = []
    for _ in range(number):
        weights = np.ones(len(runs))
        for names, place in labels:
            weights *= random.exponential(size=len(names))[place]
        found.append(weights * (len(runs) / weights.sum()))
    return found


@dataclass(frozen=True)
class Worlds:
    """Profiles that measurements allow as well, and what made them.

    ``factors``: what times are multiplied by in each; ``share``: of the unseen errors that parameters do not explain.
    """

    profiles: tuple[Profile, ...]
    factors: tuple[float, ...]
    share: float


@dataclass(frozen=True)
class _Fits:
    """A fit of some runs, all it takes to fit parts of them, and their passes at the batches that it finds."""

    problem: Problem
    here: Problem
    fitted: Fitted
    first_token: dict[str, FirstToken]
    scattered: tuple[str, ...]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> _Fits:
        """Fit the runs."""
        problem, fitted, releases = fit_of_waves(problem_of(runs, start_of(runs).pricing(runs)))
        here = problem_of(problem.runs, fitted.pricing(problem.runs))
        return cls(problem, here, fitted, fit_first_token(problem, fitted), releases)

    def unseen(self) -> Array:
        """Logarithm of measured over predicted cost of every run, each model, system and engine left out in turn."""
        found = []
        for key in FOLDS:
            labels = np.array([fold_of(run, key) for run in self.problem.runs])
            for fold in sorted(set(labels.tolist())):
                kept = labels != fold
                if not kept.any():
                    continue
                fitted = fit(self.problem, kept, near=self.fitted)
                first_token = fit_first_token(self.problem, fitted, kept)
                predicted, measured = _requests_s(self.here, fitted, first_token)
                found.append(np.log(measured / predicted)[~kept])
        errors = np.concatenate(found) if found else np.zeros(0)
        return errors[np.isfinite(errors)]


def worlds_from(runs: Sequence[Run], number: int = NUMBER) -> Worlds:
    """Worlds from some measured runs and nothing else."""
    fits = _Fits.of(runs)
    resamples = [
        fit(fits.problem, weights=one, near=fits.fitted) for one in resampled(runs, number)
    ]
    return _worlds(fits, resamples, fits.unseen())


def _worlds(fits: _Fits, resamples: Sequence[Fitted], errors: Array) -> Worlds:
    number = len(resamples)
    middle = _requests_s(fits.here, fits.fitted, fits.first_token)[0]
    spread = np.concatenate(
        [np.log(_requests_s(fits.here, one, fits.first_token)[0] / middle) for one in resamples]
    )
    share = float(np.sqrt(max(0.0, 1.0 - (_width(spread) / _width(errors)) ** 2)))
    levels = np.quantile(errors, (np.arange(number) + 0.5) / number)
    median = float(np.median(errors))
    logs = np.random.default_rng(_SEED + 1).permutation(median + share * (levels - median))
    factors = tuple(rounded(float(one)) for one in np.exp(logs))
    profiles = [profile_of(one, fits.problem, (), "world", fits.first_token) for one in resamples]
    return Worlds(
        tuple(
            slowed(one, factor).model_copy(update={"scattered": fits.scattered})
            for one, factor in zip(profiles, factors, strict=True)
        ),
        factors,
        share,
    )


def _requests_s(
    here: Problem, fitted: Fitted, first_token: dict[str, FirstToken]
) -> tuple[Array, Array]:
    """Seconds of a whole request, which a token's cost is proportional to, predicted and measured, at given batches."""
    constants = [constants_of_run(run, first_token) for run in here.runs]
    ttft_s = prefill_loads(here, fitted).ttft_s(constants)
    return request_s(here, predicted_tpot_s(here, fitted), ttft_s)


def _width(logs: Array) -> float:
    low, high = np.quantile(logs, _WIDTH)
    return float(high - low)


def slowed(profile: Profile, factor: float) -> Profile:
    """A profile whose every time is so many times as long; no fraction of a peak rate exceeds 1."""

    def of(one: Efficiency) -> Efficiency:
        return with_values(one, tuple(map(rounded, values_of(one.slower(factor)))))

    return profile.model_copy(
        update={
            "default": of(profile.default),
            "chips": {chip: of(one) for chip, one in profile.chips.items()},
            "engines": {
                name: EngineConstants(
                    default=of(own.default), chips={c: of(one) for c, one in own.chips.items()}
                )
                for name, own in profile.engines.items()
            },
            "first_token": {
                name: one.model_copy(
                    update={
                        "base_s": one.base_s * factor,
                        "prefill_layer_s": one.prefill_layer_s * factor,
                    }
                )
                for name, one in profile.first_token.items()
            },
        }
    )


def worlds_csv(worlds: Worlds) -> bytes:
    """The constants of every world as a compressed CSV file."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    for number, profile in enumerate(worlds.profiles):
        cells = {("", ""): profile.default} | {("", c): e for c, e in profile.chips.items()}
        for engine, own in profile.engines.items():
            cells[engine, ""] = own.default
            cells |= {(engine, chip): one for chip, one in own.chips.items()}
        for (engine, chip), one in cells.items():
            table.writerow((number, engine, chip, *values_of(one)))
    return gzip.compress(out.getvalue().encode(), mtime=0)


@dataclass(frozen=True)
class Coverage:
    """Runs whose measured cost is at most the predicted one at a confidence, of folds that no part had seen.

    ``excess``: median of the predicted cost at that confidence over the measured one.
    """

    key: str
    fold: str
    n: int
    covered: int
    excess: float


def coverage(
    runs: Sequence[Run], key: str, confidence: float = 0.9, number: int = NUMBER
) -> Iterator[Coverage]:
    """Coverage fold by fold: worlds from the other folds alone, the cost of each run in the world at that place.

    As many sequences decode in every world as at the middle of the worlds: passes of all roles are slowed alike.
    """
    labels = np.array([fold_of(run, key) for run in runs])
    for fold in sorted(set(labels.tolist())):
        out = [
            run
            for run, name in zip(runs, labels, strict=True)
            if name == fold and run.row.ttft_s is not None
        ]
        seen = [run for run, name in zip(runs, labels, strict=True) if name != fold]
        profiles = worlds_from(seen, number).profiles
        middle = sorted(profiles, key=lambda one: one.default.kernel_overhead_s)[number // 2]
        out = scattered(out, middle.scattered)
        here = problem_of(out, profile_pricing(out, middle))
        costs = [_under(here, one) for one in profiles]
        high = np.sort([predicted for predicted, _ in costs], axis=0)[place_of(confidence, number)]
        measured = costs[0][1]
        covered = int((measured <= high).sum())
        yield Coverage(key, fold, len(out), covered, float(np.median(high / measured)))


def _under(here: Problem, profile: Profile) -> tuple[Array, Array]:
    """As :func:`_requests_s`, under a profile."""
    pricing = profile_pricing(here.runs, profile)
    seconds = here.table.terms.seconds(pricing(owners(here.table)))
    load = prefill_load(here.runs, here.table, seconds, pricing)
    constants = [constants_of_run(run, profile.first_token) for run in here.runs]
    return request_s(here, tpot_s(here.runs, here.table, seconds), load.ttft_s(constants))
