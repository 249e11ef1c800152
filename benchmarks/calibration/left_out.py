"""Some runs of a model or system that the fit left out calibrate it; its other runs are predicted before and after."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.crossvalidation import fold_of
from costmodel.measured.fitting.fit import problem_of, start_of
from costmodel.measured.fitting.shipping import profile_of
from costmodel.measured.fitting.waves import fit_of_waves
from costmodel.measured.own.calibration import calibrate_cell
from costmodel.measured.own.prior import Known, prior_of
from costmodel.measured.own.shipped import deployment_of, known_of
from costmodel.measured.predict import predict, predict_under
from costmodel.measured.runs import Run
from costmodel.question.profile import Profile

Array = NDArray[np.float64]
#: runs that calibrate, and draws of them
RUNS, DRAWS = 5, 20
#: fewest runs of a deployment that are drawn from, so that as many again are predicted
FEWEST = 15


@dataclass(frozen=True)
class Draw:
    """Mean errors of the other runs before and after; ``factors``: of TPOT where each deployment in which one of the chosen
    runs lies, precision by precision, has the factor that fits all its runs best (no calibration knows these)."""

    fold: str
    tpot: tuple[float, float]
    ttft: tuple[float, float]
    factors: float


def calibrated_prediction(
    some: Sequence[Run], rest: Sequence[Run], profile: Profile, known: Known
) -> tuple[Array, Array]:
    """TPOT and TTFT of the rest after some runs."""
    tpot, ttft = np.zeros(len(rest)), np.zeros(len(rest))
    for key in sorted({(run.chip, run.row.engine) for run in rest}):
        mine = [run for run in some if (run.chip, run.row.engine) == key]
        cell, _ = calibrate_cell(prior_of(known, profile, *key), mine, profile, known)
        places = [i for i, run in enumerate(rest) if (run.chip, run.row.engine) == key]
        found = predict(
            [rest[i] for i in places], cell.pricing(), {**profile.first_token, **cell.first_token}
        )
        tpot[places], ttft[places] = found.tpot_s, found.ttft_s
    return tpot, ttft


def one_draw(
    fold: str, pool: Sequence[Run], profile: Profile, known: Known, rng: np.random.Generator
) -> Draw:
    """Some runs of a pool calibrate, the others are predicted."""
    chosen = set(rng.choice(len(pool), RUNS, replace=False).tolist())
    some = [run for place, run in enumerate(pool) if place in chosen]
    places = [place for place in range(len(pool)) if place not in chosen]
    rest = [pool[place] for place in places]
    before = predict_under(rest, profile)
    tpot, ttft = calibrated_prediction(some, rest, profile, known)
    seen = np.array([run.row.tpot_s for run in rest])
    first = np.array([np.nan if r.row.ttft_s is None else r.row.ttft_s for r in rest])
    return Draw(
        fold,
        (_error(before.tpot_s, seen), _error(tpot, seen)),
        (_error(before.ttft_s, first), _error(ttft, first)),
        _error(before.tpot_s * best_factors(pool, chosen, profile)[places], seen),
    )


def best_factors(pool: Sequence[Run], chosen: set[int], profile: Profile) -> Array:
    """The best factor on TPOT ``[pool]`` of every deployment and precision with a chosen run, 1 elsewhere.

    The mean of ``|f r - 1|`` is least at the median of ``1 / r`` that is weighted by ``r``.
    """
    ratios = predict_under(pool, profile).tpot_s / np.array([run.row.tpot_s for run in pool])
    labels = [(*deployment_of(run), run.instance.model.native_dtype) for run in pool]
    factors = np.ones(len(pool))
    for label in {labels[place] for place in chosen}:
        here = np.array([one == label for one in labels])
        falling = np.sort(ratios[here])[::-1]
        weights = np.cumsum(falling)
        middle = int(np.searchsorted(weights, weights[-1] / 2.0))
        factors[here] = 1.0 / falling[middle]
    return factors


def _error(found: Array, seen: Array) -> float:
    return float(np.nanmean(np.abs(found / seen - 1.0)))


def without(runs: Sequence[Run], key: str, fold: str) -> tuple[Profile, Known]:
    """The profile and what is known of it, fitted without a model or system."""
    kept = [run for run in runs if fold_of(run, key) != fold]
    problem, fitted, releases = fit_of_waves(problem_of(kept, start_of(kept).pricing(kept)))
    profile = profile_of(fitted, problem, (), "left-out").model_copy(update={"scattered": releases})
    return profile, known_of(problem, fitted, profile.first_token)


def left_out(runs: Sequence[Run], draws: int) -> dict[str, list[Draw]]:
    """Draws by how runs are drawn: of one deployment of the fold, or of the whole fold."""
    found: dict[str, list[Draw]] = defaultdict(list)
    rng = np.random.default_rng(1)
    for key in ("model", "system"):
        for fold in sorted({fold_of(run, key) for run in runs}):
            profile, known = without(runs, key, fold)
            mine = [run for run in runs if fold_of(run, key) == fold]
            deployments: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
            for run in mine:
                deployments[deployment_of(run)].append(run)
            pools = {
                "of one deployment": [p for p in deployments.values() if len(p) >= FEWEST],
                "of the whole model or system": [mine],
            }
            for name, some in pools.items():
                for pool in some:
                    found[name] += [
                        one_draw(f"{key} {fold}", pool, profile, known, rng) for _ in range(draws)
                    ]
    return found


def print_left_out(found: dict[str, list[Draw]]) -> None:
    """Medians over all draws and fold by fold."""
    for name, draws in found.items():
        print(f"{RUNS} runs drawn {name}: {len(draws)} draws")
        for figure in ("tpot", "ttft"):
            pairs = np.array([getattr(draw, figure) for draw in draws])
            falls = 1.0 - pairs[:, 1] / pairs[:, 0]
            print(
                f"  {figure.upper()} error of the rest falls by {np.median(falls):.1%} in the median "
                f"(quartiles {np.quantile(falls, 0.25):.1%} to {np.quantile(falls, 0.75):.1%}), falls at all in "
                f"{np.mean(falls > 0):.0%}, doubles in {np.mean(pairs[:, 1] > 2 * pairs[:, 0]):.1%}; "
                f"mean {pairs[:, 0].mean():.1%} -> {pairs[:, 1].mean():.1%}"
            )
        known = [1.0 - draw.factors / draw.tpot[0] for draw in draws]
        print(f"  the best factor wherever one of the runs lies: TPOT {np.median(known):.1%}")
        for fold in dict.fromkeys(draw.fold for draw in draws):
            here = np.array([draw.tpot for draw in draws if draw.fold == fold])
            falls = 1.0 - here[:, 1] / here[:, 0]
            print(f"    {fold:<40} {np.median(falls):>7.1%}  {len(here)} draws")
