"""How often proposed and random runs put two top layouts in the right order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibration.recovery import NOISE
from costmodel.measured.own.calibration import pricing_at, update_cell
from costmodel.measured.own.design import choose
from costmodel.measured.own.prior import shipped_known
from costmodel.measured.predict import predict
from costmodel.question.instance import resolve_instance
from costmodel.question.profile import load_profile
from costmodel.question.scenario import Scenario
from rackfit.measurements.probe import Probed, log_cost, probe

Array = NDArray[np.float64]
#: runs that order a pair
RUNS = 3
#: of the hidden parameters and the noise
SEED = 3
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
    """A pair of top layouts: how often random runs, those proposed for the choice among all layouts and those proposed for
    the pair put them in the right order, of how many trials; ``unmeasured``: the order as shipped."""

    question: str
    random: float
    among: float
    proposed: float
    unmeasured: float
    trials: int


def ordered(trials: int, seed: int = SEED) -> list[Ordered]:
    """Every pair of top layouts of every question, hidden parameters drawn anew for each trial."""
    found = []
    for model, cluster, engine, tpot in QUESTIONS:
        scenario = Scenario.model_validate(
            {"model": model, "cluster": cluster, "engine": engine, "slo": {"ttft": "2 s", "tpot": tpot},
             "workload": {"input_tokens": 2000, "output_tokens": 500}}
        )  # fmt: skip
        asked = probe(resolve_instance(scenario), RUNS)
        shares = _shares(asked, trials, seed)
        found += [Ordered(f"{model} on {cluster}", *right, trials) for right in shares]
    return found


def _shares(asked: Probed, trials: int, seed: int) -> list[tuple[float, float, float, float]]:
    """For every pair of layouts the shares of trials in the right order, by random runs, proposed ones, and none."""
    rng = np.random.default_rng(seed)
    profile, known = load_profile("calibrated"), shipped_known()
    prior, runs, layouts = asked.prior, asked.runs, asked.layouts
    pairs = list(combinations(range(len(layouts)), 2))
    among = [pick.run for pick in asked.picks]
    proposed = [[pick.run for pick in choose(asked.question, RUNS, pair)] for pair in pairs]
    right = np.zeros((len(pairs), 4))
    everything = range(len(layouts))
    shipped = dict(enumerate(asked.question.expected.tolist()))
    for _ in range(trials):
        truth = rng.multivariate_normal(prior.mean, prior.covariance, method="cholesky")
        exact = predict(runs, pricing_at(truth), {}).tpot_s
        real = [log_cost(asked.instance, layout, truth) for layout in layouts]

        def thought(
            chosen: list[int], of: Sequence[int] = everything, exact: Array = exact
        ) -> dict[int, float]:
            seen = exact[chosen] * np.exp(NOISE * rng.standard_normal(len(chosen)))
            rows = [
                replace(runs[i], row=replace(runs[i].row, tpot_s=float(time)))
                for i, time in zip(chosen, seen, strict=True)
            ]
            mean = update_cell(prior, rows, profile, known).after.mean
            return {i: log_cost(asked.instance, layouts[i], mean) for i in of}

        random = thought(rng.choice(len(runs), min(RUNS, len(runs)), replace=False).tolist())
        all_told = thought(among)
        for place, (a, b) in enumerate(pairs):
            ways = (random, all_told, thought(proposed[place], (a, b)), shipped)
            for way, costs in enumerate(ways):
                right[place, way] += (costs[a] < costs[b]) == (real[a] < real[b])
    return [tuple(one) for one in (right / trials).tolist()]


def print_ordered(found: Sequence[Ordered]) -> None:
    """Pair by pair, and those that random runs order badly."""
    for one in found:
        print(
            f"  {one.question:<36} right order: unmeasured {one.unmeasured:.0%}, three random runs "
            f"{one.random:.0%}, three proposed for all layouts {one.among:.0%}, for the pair {one.proposed:.0%} of "
            f"{one.trials} trials"
        )
    hard = [one for one in found if one.random <= 0.6]
    good = [one for one in hard if one.proposed >= 0.8]
    print(
        f"{len(found)} pairs; {len(hard)} that random runs order in at most 60 %, of which proposed runs order "
        f"{len(good)} in at least 80 %; over all pairs random {np.mean([o.random for o in found]):.1%}, proposed for all "
        f"layouts {np.mean([o.among for o in found]):.1%}, for the pair {np.mean([o.proposed for o in found]):.1%}, "
        f"unmeasured {np.mean([o.unmeasured for o in found]):.1%}"
    )
