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
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.calibration import shipped_rows
from costmodel.measured.fitting.crossvalidation import fold_of
from costmodel.measured.fitting.fit import LogErrors, Problem, fit, problem_of, start_of
from costmodel.measured.fitting.intervals import NINETY
from costmodel.measured.fitting.shipping import profile_of
from costmodel.measured.own.calibration import calibrate_cell, pricing_at, update_cell
from costmodel.measured.own.prior import Known, prior_of, shipped_known
from costmodel.measured.own.shipped import deployment_of, known_of
from costmodel.measured.predict import predict, predict_under
from costmodel.measured.runs import Run
from costmodel.measured.scores import scorable
from costmodel.question.instance import resolve_instance
from costmodel.question.profile import Profile, load_profile
from costmodel.question.scenario import Scenario
from rackfit.measurements.probe import log_cost, probe

Array = NDArray[np.float64]
#: runs that calibrate, and draws of them
RUNS, DRAWS = 5, 20
#: fewest runs of a deployment that are drawn from, so that as many again are predicted
FEWEST = 15
#: runs of a recovery, its trials, the other layouts (at least, at most), and the noise of a run
MANY, TRIALS, OTHERS, MOST_OTHERS, NOISE = (5, 10, 30), 200, 20, 40, 0.05


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
        others = LogErrors(problem_of(pool[max(MANY) :], pricing_at(prior.mean)))
        right = others.at(_alike(truth, len(pool) - max(MANY)))
        for many in MANY:
            after = update_cell(prior, measured[:many], profile, known).after
            offs = [
                others.at(_alike(mean, len(right))) - right for mean in (prior.mean, after.mean)
            ]
            slopes = others.slopes(_alike(after.mean, len(right)))
            spread = np.sqrt(np.einsum("pi,pq,qi->i", slopes, after.covariance, slopes))
            found.append(
                Trial(
                    many,
                    *(float(np.mean(np.abs(np.expm1(off)))) for off in offs),
                    float(np.mean(np.abs(after.mean - truth) <= NINETY * after.sd)),
                    float(np.mean(np.abs(offs[1]) <= NINETY * spread)),
                )
            )
    return found


def _made(runs: Sequence[Run], mean: Array, truth: Array, rng: np.random.Generator) -> list[Run]:
    """Runs with the times that hidden parameters make, and noise."""
    problem = problem_of(runs, pricing_at(mean))
    exact = np.exp(LogErrors(problem).at(_alike(truth, len(runs)))) * problem.measured_s
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


#: questions whose top layouts are told apart: model, cluster, engine, TPOT
QUESTIONS = (
    ("llama-3.1-70b", "hgx-h100", "vllm", "40 ms"),
    ("llama-3.1-70b", "hgx-b200@2", "sglang", "20 ms"),
    ("qwen3-32b", "hgx-h200", "sglang", "20 ms"),
    ("gpt-oss-120b", "hgx-h100@2", "vllm", "15 ms"),
    ("qwen3-235b-a22b", "hgx-h200@2", "sglang", "40 ms"),
)


@dataclass(frozen=True)
class Ordered:
    """A pair of top layouts: how often random and proposed runs put them in the right order, of how many trials."""

    question: str
    random: float
    proposed: float
    unmeasured: float
    trials: int


def ordered(trials: int) -> list[Ordered]:
    """Every pair of top layouts of every question, hidden parameters drawn anew for each trial."""
    rng = np.random.default_rng(3)
    profile, known = load_profile("calibrated"), shipped_known()
    found = []
    for model, cluster, engine, tpot in QUESTIONS:
        scenario = Scenario.model_validate(
            {"model": model, "cluster": cluster, "engine": engine, "slo": {"ttft": "2 s", "tpot": tpot},
             "workload": {"input_tokens": 2000, "output_tokens": 500}}
        )  # fmt: skip
        asked = probe(resolve_instance(scenario), 3)
        prior, runs, layouts = asked.prior, asked.runs, asked.layouts
        pairs = list(combinations(range(len(layouts)), 2))
        right = np.zeros((3, len(pairs)))
        for _ in range(trials):
            truth = rng.multivariate_normal(prior.mean, prior.covariance, method="cholesky")
            exact = predict(runs, pricing_at(truth), {}).tpot_s
            real = [log_cost(asked.instance, layout, truth) for layout in layouts]
            means = [prior.mean]
            for chosen in (
                rng.choice(len(runs), min(3, len(runs)), replace=False).tolist(),
                [pick.run for pick in asked.picks],
            ):
                seen = exact[chosen] * np.exp(NOISE * rng.standard_normal(len(chosen)))
                rows = [
                    replace(runs[i], row=replace(runs[i].row, tpot_s=float(time)))
                    for i, time in zip(chosen, seen, strict=True)
                ]
                means.append(update_cell(prior, rows, profile, known).after.mean)
            for way, mean in enumerate(means):
                thought = [log_cost(asked.instance, layout, mean) for layout in layouts]
                for place, (a, b) in enumerate(pairs):
                    right[way, place] += (thought[a] < thought[b]) == (real[a] < real[b])
        for place in range(len(pairs)):
            blind, random, proposed = (float(one) for one in right[:, place] / trials)
            found.append(Ordered(f"{model} on {cluster}", random, proposed, blind, trials))
    return found


def print_ordered(found: Sequence[Ordered]) -> None:
    """Pair by pair, and those that random runs order badly."""
    for one in found:
        print(
            f"  {one.question:<36} right order: unmeasured {one.unmeasured:.0%}, three random runs "
            f"{one.random:.0%}, three proposed {one.proposed:.0%} of {one.trials} trials"
        )
    hard = [one for one in found if one.random <= 0.6]
    good = [one for one in hard if one.proposed >= 0.8]
    print(
        f"{len(found)} pairs; {len(hard)} that random runs order in at most 60 %, of which proposed runs order "
        f"{len(good)} in at least 80 %; over all pairs random {np.mean([o.random for o in found]):.1%}, proposed "
        f"{np.mean([o.proposed for o in found]):.1%}, unmeasured {np.mean([o.unmeasured for o in found]):.1%}"
    )


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("left-out", "recovery", "probe"))
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--trials", type=int, default=TRIALS)
    asked = parser.parse_args()
    if asked.what == "probe":
        print_ordered(ordered(asked.trials))
        return
    runs, _ = scorable(*shipped_rows())
    if asked.what == "left-out":
        print_left_out(left_out(runs, asked.draws))
    else:
        print_recovery(recovery(runs, asked.trials))


if __name__ == "__main__":
    main()
