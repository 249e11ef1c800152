"""Hidden parameters, runs made with them and noise, and how well other layouts are predicted after these runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.fit import problem_of
from costmodel.measured.fitting.intervals import NINETY
from costmodel.measured.own.calibration import pricing_at, update_cell
from costmodel.measured.own.pace import own_errors
from costmodel.measured.own.prior import prior_of, shipped_known
from costmodel.measured.own.shipped import deployment_of
from costmodel.measured.runs import Run
from costmodel.question.profile import load_profile

Array = NDArray[np.float64]
#: runs of a recovery, its trials, the other layouts (at least, at most), and the noise of a run
MANY, TRIALS, OTHERS, MOST_OTHERS, NOISE = (5, 10, 30), 200, 20, 40, 0.05


@dataclass(frozen=True)
class Trial:
    """Mean errors before and after, and the share of 90 % intervals that hold: of parameters, of other layouts' TPOT."""

    runs: int
    before: float
    after: float
    parameters: float
    layouts: float


def recovery(runs: Sequence[Run], trials: int, seed: int = 2) -> list[Trial]:
    """Hidden parameters of deployments in turn, measured with 5 % noise at 5, 10 and 30 of their layouts."""
    profile, known = load_profile("calibrated"), shipped_known()
    deployments: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in runs:
        deployments[deployment_of(run)].append(run)
    pools = [pool for pool in deployments.values() if len(pool) >= max(MANY) + OTHERS]
    rng = np.random.default_rng(seed)
    found = []
    for trial in range(trials):
        pool = pools[(seed + trial) % len(pools)]
        chosen = rng.permutation(len(pool))[: max(MANY) + MOST_OTHERS]
        pool = [pool[i] for i in chosen]
        prior = prior_of(known, profile, pool[0].chip, pool[0].row.engine)
        truth = rng.multivariate_normal(prior.mean, prior.covariance, method="cholesky")
        measured = _made(pool[: max(MANY)], prior.mean, truth, rng)
        others = own_errors(problem_of(pool[max(MANY) :], pricing_at(prior.mean)))
        right = others.at(_alike(truth, len(pool) - max(MANY)))
        for many in MANY:
            after = update_cell(prior, measured[:many], profile, known).after
            before, off = (
                others.at(_alike(mean, len(right))) - right for mean in (prior.mean, after.mean)
            )
            slopes = others.slopes(_alike(after.mean, len(right)))
            spread = np.sqrt(np.einsum("pi,pq,qi->i", slopes, after.covariance, slopes))
            found.append(
                Trial(
                    many,
                    float(np.mean(np.abs(np.expm1(before)))),
                    float(np.mean(np.abs(np.expm1(off)))),
                    float(np.mean(np.abs(after.mean - truth) <= NINETY * after.sd)),
                    float(np.mean(np.abs(off) <= NINETY * spread)),
                )
            )
    return found


def _made(runs: Sequence[Run], mean: Array, truth: Array, rng: np.random.Generator) -> list[Run]:
    """Runs with the times that hidden parameters make, and noise."""
    problem = problem_of(runs, pricing_at(mean))
    exact = np.exp(own_errors(problem).at(_alike(truth, len(runs)))) * problem.measured_s
    seen = exact * np.exp(NOISE * rng.standard_normal(len(runs)))
    return [
        replace(run, row=replace(run.row, tpot_s=float(tpot), ttft_s=None))
        for run, tpot in zip(runs, seen, strict=True)
    ]


def _alike(scales: Array, runs: int) -> Array:
    return np.repeat(scales[:, None], runs, axis=1)


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
