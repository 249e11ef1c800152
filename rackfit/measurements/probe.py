"""Which runs to measure next: those that best tell the top layouts of a question apart, or what the best one costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.measured.fitting.fit import problem_of
from costmodel.measured.fitting.intervals import NINETY
from costmodel.measured.own.calibration import pricing_at
from costmodel.measured.own.design import Pick, Question, choose
from costmodel.measured.own.pace import own_errors
from costmodel.measured.own.prior import Prior, prior_of, shipped_known
from costmodel.measured.own.profile import efficiency_of
from costmodel.measured.predict import predict
from costmodel.measured.runs import Run
from costmodel.question.instance import Instance
from rackfit.measurements.bench_commands import ENGINES, bench_command, launch_command
from rackfit.measurements.candidates import candidate_runs
from rackfit.report.compare import built, built_words
from rackfit.wording import amount, some
from solver.clock import Clock
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime, Problem
from topology.quantity import per_cent

Array = NDArray[np.float64]
#: parameter sets under which the question is solved beside the shipped one
WORLDS = 4
#: parameter sets on which runs are tried, and how many are tried however little time is left
DRAWS, LEAST_DRAWS = 192, 16
#: share of the time limit that the searches may take
_SEARCHING = 0.7


@dataclass(frozen=True)
class Probed:
    """Top layouts of a question with their costs, the runs that may be measured, and those proposed."""

    instance: Instance
    prior: Prior
    layouts: tuple[Layout, ...]
    question: Question
    runs: tuple[Run, ...]
    picks: tuple[Pick, ...]
    between: tuple[int, int] | None = None
    #: parameter sets under which the question was solved and on which runs were tried, of as many asked for
    solved: tuple[int, int] = (WORLDS, WORLDS)
    tried: tuple[int, int] = (DRAWS, DRAWS)

    @property
    def cut_short(self) -> str | None:
        """What the time limit left out, in words."""
        short = [
            f"{what} {done} of {asked} sampled parameter sets"
            for what, (done, asked) in (
                ("solved under", self.solved),
                ("runs tried on", self.tried),
            )
            if done < asked
        ]
        return f"the time limit came first: {', '.join(short)}" if short else None

    @cached_property
    def tpot_s(self) -> Array:
        """What is expected of every run."""
        return predict(self.runs, pricing_at(self.prior.mean), {}).tpot_s

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "schema_version": 1,
            "layouts": [
                {"replicas": built_words(layout), "usd_per_m_output_tokens": float(np.exp(cost))}
                for layout, cost in zip(self.layouts, self.question.expected, strict=True)
            ],
            "answer_sd": self.question.answer_sd([]),
            "between": self.between,
            "solved_sets": self.solved[0],
            "tried_sets": self.tried[0],
            "runs": [self._run(pick) for pick in self.picks],
        }

    def _run(self, pick: Pick) -> dict[str, Any]:
        run = self.runs[pick.run]
        row, users = run.row, round(run.row.concurrency)
        return {
            "chips": row.decode.chips,
            "concurrency": users,
            "input_tokens": round(row.input_tokens),
            "output_tokens": round(row.output_tokens),
            "expected_tpot_ms": 1e3 * float(self.tpot_s[pick.run]),
            "gain": pick.gain,
            "answer_sd": pick.answer_sd,
            "right": pick.right,
            "launch": launch_command(row.engine, row.model, row.decode, users),
            "bench": bench_command(
                row.model, round(row.input_tokens), round(row.output_tokens), users
            ),
        }

    def lines(self) -> list[str]:
        """The same in words."""
        data = self.as_dict()
        found = [
            "layouts that are best under what measurements leave open (one that misses a target counts as dearer by as much):"
        ]
        for number, one in enumerate(data["layouts"], 1):
            found.append(
                f"  {number}. ${amount(one['usd_per_m_output_tokens'])}  {one['replicas']}"
            )
        found.append(
            f"the best one's cost is known within {_range(data['answer_sd'])} (90 % interval)"
        )
        if len(self.layouts) > 1:
            turned = float(self.question.open_pairs()[0, 1:].max())
            found.append(f"the chance that one of the others costs less is up to {turned:.0%}")
        if self.cut_short is not None:
            found.append(self.cut_short)
        found.append("runs to measure, the most telling first:")
        for number, one in enumerate(data["runs"], 1):
            after = "this run" if number == 1 else f"runs 1 to {number}"
            chips, users = one["chips"], one["concurrency"]
            found += [
                f"{number}. on {chips} chip{'s' * (chips > 1)}, {users} request{'s' * (users > 1)} in flight of "
                f"{one['input_tokens']} + {one['output_tokens']} tokens; about {one['expected_tpot_ms']:.1f} ms per token "
                "are expected",
                f"   choosing after {after} saves {some(one['gain'], 2)} on average; the cost is then known within "
                f"{_range(one['answer_sd'])}",
            ]
            if self.between is not None:
                first, second = self.between
                found.append(
                    f"   layouts {first} and {second} are then in the right order with chance {one['right']:.0%}"
                )
            found += [
                f"   {one['launch']}",
                f"   {one['bench']}",
            ]
        return found


def _range(sd: float) -> str:
    low, high = (per_cent(float(np.expm1(sign * NINETY * sd)), 0, signed=True) for sign in (-1, 1))
    return "less than 1%" if low == high else f"{low} and {high}"


def probe(
    instance: Instance,
    count: int,
    *,
    time_limit_s: float = 120.0,
    worlds: int = WORLDS,
    seed: int = 0,
    between: tuple[int, int] | None = None,
) -> Probed:
    """Solve a question under several parameter sets and choose runs; ``between``: those that order two of its layouts,
    numbered from 1 as they are listed. Where the time ends first, fewer parameter sets are sampled.
    Raises ``InstanceError``, ``NoFeasibleLayout``, ``NoLayoutInTime``."""
    clock = Clock(time_limit_s)
    prior = _prior(instance)
    layouts, solved = _top_layouts(instance, prior, worlds, clock, seed)
    runs = candidate_runs(instance, layouts)
    if not runs:
        raise InstanceError(Problem("probe", "no worker of these layouts holds the model alone"))
    if between is not None and not all(1 <= one <= len(layouts) for one in between):
        message = f"expected two of the layouts 1 to {len(layouts)}, got {between[0]},{between[1]}"
        raise InstanceError(Problem("--between", message))
    costs, times = _tried(instance, layouts, runs, prior, seed, clock)
    expected = np.array([log_cost(instance, layout, prior.mean) for layout in layouts])
    question = Question(expected, costs, times, shipped_known().row_sd)
    pair = None if between is None else (between[0] - 1, between[1] - 1)
    picks = tuple(choose(question, count, pair))
    return Probed(
        instance, prior, tuple(layouts), question, tuple(runs), picks, between,
        (solved, worlds), (len(costs), DRAWS),
    )  # fmt: skip


def _tried(
    instance: Instance,
    layouts: list[Layout],
    runs: list[Run],
    prior: Prior,
    seed: int,
    clock: Clock,
) -> tuple[Array, Array]:
    """Logs of the layouts' costs ``[draws, layouts]`` and of the runs' times ``[draws, runs]`` under drawn parameters."""
    rng = np.random.default_rng(seed)
    half = rng.multivariate_normal(prior.mean, prior.covariance, DRAWS // 2, method="cholesky")
    draws = np.concatenate([half, 2.0 * prior.mean - half])
    times = own_errors(problem_of(runs, pricing_at(prior.mean)))
    rows: dict[int, tuple[list[float], Array]] = {}
    for near in range(len(half)):
        if len(rows) >= LEAST_DRAWS and clock.over:
            break
        for place in (
            near,
            near + len(half),
        ):  # one and its mirror image: their mean is the expected set
            one = draws[place]
            costs = [log_cost(instance, layout, one) for layout in layouts]
            rows[place] = costs, times.at(np.repeat(one[:, None], len(runs), axis=1))
    tried = [rows[place] for place in sorted(rows)]
    return np.array([costs for costs, _ in tried]), np.array([seconds for _, seconds in tried])


def _prior(instance: Instance) -> Prior:
    """What is known of the chip and engine of a question. Raises ``InstanceError``."""
    engine = (instance.scenario.engine or "").partition("@")[0]
    problems = []
    if engine not in ENGINES:
        message = f"name the engine that would be measured: {', '.join(ENGINES)}"
        problems.append(Problem("--engine", message))
    chips = sorted({placed.chip.name for placed in instance.cluster.usable})
    if len(chips) != 1:
        message = f"runs are proposed for one kind of chip; the cluster has {', '.join(chips)}"
        problems.append(Problem("cluster", message))
    if instance.profile.held_out is None:
        message = f"{instance.profile.name} was not fitted; runs are proposed for a fitted profile"
        problems.append(Problem("profile", message))
    if problems:
        raise InstanceError(problems)
    return prior_of(shipped_known(), instance.profile, chips[0], engine)


def under(instance: Instance, scales: Array) -> Instance:
    """The question under other parameters of its chip."""
    chip = instance.cluster.usable[0].chip.name
    former = instance.profile.for_chip(chip)
    chips = {**instance.profile.chips, chip: efficiency_of(scales, former)}
    found = replace(instance, profile=instance.profile.model_copy(update={"chips": chips}))
    # the model's operations do not depend on the profile
    vars(found)["operations"] = instance.operations
    return found


def log_cost(instance: Instance, layout: Layout, scales: Array) -> float:
    """Logarithm of a layout's $ per million output tokens under other parameters.

    One that misses its TPOT or TTFT counts as dearer by as much: about what meeting it with fewer sequences costs.
    """
    found = evaluate(under(instance, scales), layout)
    cost, slo = found.usd_per_m_output_tokens, instance.slo
    assert cost is not None, "a layout that was found has a price"
    late = 1.0
    for figure, target in ((found.tpot_s, slo.tpot), (found.ttft_s, slo.ttft)):
        if figure is not None and target is not None:
            late = max(late, figure / target)
    return float(np.log(cost * late))


def _top_layouts(
    instance: Instance, prior: Prior, worlds: int, clock: Clock, seed: int
) -> tuple[list[Layout], int]:
    """The best layout, its runner-up, and the best under parameters drawn from what is open, each kind once; and under
    how many of the drawn sets the question was solved in time."""
    from rackfit.api import solve

    rng = np.random.default_rng(seed)
    assert clock.limit_s is not None
    kept_s = (1.0 - _SEARCHING) * clock.limit_s
    each = _SEARCHING * clock.limit_s / (worlds + 1)
    answer = solve(instance, time_limit_s=each, seed=seed)
    found = [answer.layout]
    if answer.search.runner_up is not None:
        found.append(answer.search.runner_up.layout)
    solved = 0
    for left in range(worlds, 0, -1):
        each = (clock.remaining_s - kept_s) / left
        if each <= 0:
            break
        drawn = rng.multivariate_normal(prior.mean, prior.covariance, method="cholesky")
        try:
            found.append(solve(under(instance, drawn), time_limit_s=each, seed=seed).layout)
        except NoLayoutInTime:
            continue
        except NoFeasibleLayout:
            pass
        solved += 1
    unlike: dict[frozenset[object], Layout] = {}
    for layout in found:
        unlike.setdefault(frozenset(built(layout).items()), layout)
    best = sorted(unlike.values(), key=lambda layout: log_cost(instance, layout, prior.mean))
    return best, solved
