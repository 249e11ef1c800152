"""What a few runs of one's own are worth: ``python -m benchmarks.calibration left-out|recovery|probe``.

``left-out``: each model and each system of the shipped measurements is left out of the fit in turn; some of its
runs then calibrate, and the rest is predicted before and after. ``recovery``: hidden parameters are drawn from what
the shipped fit leaves open, runs are made with them and 5 % noise, and other layouts are predicted before and after.
``probe``: how often proposed and random runs put two layouts in the right order. Prints figures with their numbers.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.calibration import shipped_rows
from costmodel.measured.fitting.crossvalidation import fold_of
from costmodel.measured.fitting.fit import LogErrors, Problem, fit, problem_of, start_of
from costmodel.measured.fitting.intervals import NINETY
from costmodel.measured.fitting.shipping import profile_of
from costmodel.measured.own.calibration import pricing_at, update_cell
from costmodel.measured.own.prior import Known, prior_of, shipped_known
from costmodel.measured.own.shipped import deployment_of, known_of
from costmodel.measured.predict import predict, predict_under
from costmodel.measured.runs import Run
from costmodel.measured.scores import scorable
from costmodel.question.profile import Profile, load_profile

Array = NDArray[np.float64]
#: runs that calibrate, and draws of them
RUNS, DRAWS = 5, 20
#: fewest runs of a deployment that are drawn from, so that as many again are predicted
FEWEST = 15
#: runs of a recovery, its trials, the other layouts at least, and the noise of a run
MANY, TRIALS, OTHERS, NOISE = (5, 10, 30), 200, 20, 0.05


@dataclass(frozen=True)
class Draw:
    """Mean errors of the other runs before and after."""

    fold: str
    tpot: tuple[float, float]
    ttft: tuple[float, float]


def calibrated_prediction(
    some: Sequence[Run], rest: Sequence[Run], profile: Profile, known: Known
) -> tuple[Array, Array]:
    """TPOT and TTFT of the rest after some runs."""
    tpot, ttft = np.zeros(len(rest)), np.zeros(len(rest))
    for key in sorted({(run.chip, run.row.engine) for run in rest}):
        mine = [run for run in some if (run.chip, run.row.engine) == key]
        cell = update_cell(prior_of(known, profile, *key), mine, profile, known)
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
    rest = [run for place, run in enumerate(pool) if place not in chosen]
    before = predict_under(rest, profile)
    tpot, ttft = calibrated_prediction(some, rest, profile, known)
    seen = np.array([run.row.tpot_s for run in rest])
    first = np.array([np.nan if r.row.ttft_s is None else r.row.ttft_s for r in rest])
    return Draw(
        fold,
        (_error(before.tpot_s, seen), _error(tpot, seen)),
        (_error(before.ttft_s, first), _error(ttft, first)),
    )


def _error(found: Array, seen: Array) -> float:
    return float(np.nanmean(np.abs(found / seen - 1.0)))


def without(runs: Sequence[Run], key: str, fold: str) -> tuple[Profile, Known]:
    """The profile and what is known of it, fitted without a model or system."""
    kept = [run for run in runs if fold_of(run, key) != fold]
    problem: Problem = problem_of(kept, start_of(kept).pricing(kept))
    fitted = fit(problem)
    profile = profile_of(fitted, problem, (), "left-out")
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
        for fold in dict.fromkeys(draw.fold for draw in draws):
            here = np.array([draw.tpot for draw in draws if draw.fold == fold])
            falls = 1.0 - here[:, 1] / here[:, 0]
            print(f"    {fold:<40} {np.median(falls):>7.1%}  {len(here)} draws")


@dataclass(frozen=True)
class Trial:
    """Mean errors before and after, and the share of 90 % intervals that hold: of parameters, of other layouts' TPOT."""

    runs: int
    before: float
    after: float
    parameters: float
    layouts: float


def recovery(runs: Sequence[Run], trials: int) -> list[Trial]:
    """Hidden parameters of deployments in turn, measured with 5 % noise at 5, 10 and 30 of their layouts."""
    profile, known = load_profile("calibrated"), shipped_known()
    deployments: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in runs:
        deployments[deployment_of(run)].append(run)
    pools = [pool for pool in deployments.values() if len(pool) >= max(MANY) + OTHERS]
    rng = np.random.default_rng(2)
    found = []
    for trial in range(trials):
        pool = pools[trial % len(pools)]
        prior = prior_of(known, profile, pool[0].chip, pool[0].row.engine)
        truth = rng.multivariate_normal(prior.mean, prior.covariance, method="cholesky")
        exact = predict(pool, pricing_at(truth), profile.first_token).tpot_s
        seen = exact * np.exp(NOISE * rng.standard_normal(len(pool)))
        order = rng.permutation(len(pool))
        others = [pool[i] for i in order[: -max(MANY)]]
        right = exact[order[: -max(MANY)]]
        for many in MANY:
            measured = [
                replace(pool[i], row=replace(pool[i].row, tpot_s=float(seen[i]), ttft_s=None))
                for i in order[-many:]
            ]
            after = update_cell(prior, measured, profile, known).after
            errors = [
                _error(predict(others, pricing_at(mean), {}).tpot_s, right)
                for mean in (prior.mean, after.mean)
            ]
            problem = problem_of(others, pricing_at(after.mean))
            scales = np.repeat(after.mean[:, None], len(others), axis=1)
            slopes = LogErrors(problem).slopes(scales)
            spread = np.sqrt(np.einsum("pi,pq,qi->i", slopes, after.covariance, slopes))
            off = np.abs(np.log(predict(others, pricing_at(after.mean), {}).tpot_s / right))
            found.append(
                Trial(
                    many,
                    *errors,
                    float(np.mean(np.abs(after.mean - truth) <= NINETY * after.sd)),
                    float(np.mean(off <= NINETY * spread)),
                )
            )
    return found


def print_recovery(found: Sequence[Trial]) -> None:
    """By the number of runs."""
    for many in MANY:
        some = [one for one in found if one.runs == many]
        before, after = (np.array([getattr(o, n) for o in some]) for n in ("before", "after"))
        print(
            f"{many} runs with {NOISE:.0%} noise, {len(some)} trials: the error of the other layouts falls in "
            f"{np.mean(after < before):.1%}, more than doubles in {np.mean(after > 2 * before):.1%}; mean "
            f"{before.mean():.1%} -> {after.mean():.1%}; 90 % intervals hold "
            f"{np.mean([o.parameters for o in some]):.1%} of the parameters, "
            f"{np.mean([o.layouts for o in some]):.1%} of the layouts"
        )


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("left-out", "recovery"))
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--trials", type=int, default=TRIALS)
    asked = parser.parse_args()
    runs, _ = scorable(*shipped_rows())
    if asked.what == "left-out":
        print_left_out(left_out(runs, asked.draws))
    else:
        print_recovery(recovery(runs, asked.trials))


if __name__ == "__main__":
    main()
