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
from costmodel.measured.rows import Group, MeasuredRow
from costmodel.measured.runs import Run, sequences_that_fit, worker_rates
from costmodel.measured.systems import resolve_instance_like
from costmodel.question.instance import Instance
from costmodel.question.workload import Workload
from rackfit.measurements.bench_commands import ENGINES, bench_command, launch_command
from rackfit.report.compare import built, built_words
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime, Problem

Array = NDArray[np.float64]
#: parameter sets under which the question is solved beside the shipped one
WORLDS = 4
#: parameter sets on which runs are tried
DRAWS = 192
#: tokens of a short answer and of a short prompt
_SHORT, _SHORT_PROMPT = 16, 64
#: shares of a layout's batch that are worth measuring
_SHARES = (1.0, 0.25, 0.0625)


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
            found.append(f"  {number}. ${one['usd_per_m_output_tokens']:.4f}  {one['replicas']}")
        found.append(
            f"the best one's cost is known within {_range(data['answer_sd'])} (90 % interval)"
        )
        if len(self.layouts) > 1:
            turned = float(self.question.open_pairs()[0, 1:].max())
            found.append(f"the chance that one of the others costs less is up to {turned:.0%}")
        found.append("runs to measure, the most telling first:")
        for number, one in enumerate(data["runs"], 1):
            after = "this run" if number == 1 else f"runs 1 to {number}"
            chips, users = one["chips"], one["concurrency"]
            found += [
                f"{number}. on {chips} chip{'s' * (chips > 1)}, {users} request{'s' * (users > 1)} in flight of "
                f"{one['input_tokens']} + {one['output_tokens']} tokens; about {one['expected_tpot_ms']:.1f} ms per token "
                "are expected",
                f"   choosing after {after} saves {one['gain']:.2%} on average; the cost is then known within "
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
    return f"{np.expm1(-NINETY * sd):+.0%} and {np.expm1(NINETY * sd):+.0%}"


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
    numbered from 1 as they are listed. Raises ``InstanceError``, ``NoFeasibleLayout``."""
    prior = _prior(instance)
    layouts = _top_layouts(instance, prior, worlds, time_limit_s, seed)
    runs = candidate_runs(instance, layouts)
    if not runs:
        raise InstanceError(Problem("probe", "no worker of these layouts holds the model alone"))
    if between is not None and not all(1 <= one <= len(layouts) for one in between):
        message = f"expected two of the layouts 1 to {len(layouts)}, got {between[0]},{between[1]}"
        raise InstanceError(Problem("--between", message))
    question = Question(
        np.array([log_cost(instance, layout, prior.mean) for layout in layouts]),
        *_tried(instance, layouts, runs, prior, seed),
        shipped_known().row_sd,
    )
    pair = None if between is None else (between[0] - 1, between[1] - 1)
    picks = tuple(choose(question, count, pair))
    return Probed(instance, prior, tuple(layouts), question, tuple(runs), picks, between)


def _tried(
    instance: Instance, layouts: list[Layout], runs: list[Run], prior: Prior, seed: int
) -> tuple[Array, Array]:
    """Logs of the layouts' costs ``[draws, layouts]`` and of the runs' times ``[draws, runs]`` under drawn parameters."""
    rng = np.random.default_rng(seed)
    half = rng.multivariate_normal(prior.mean, prior.covariance, DRAWS // 2, method="cholesky")
    draws = np.concatenate([half, 2.0 * prior.mean - half])
    times = own_errors(problem_of(runs, pricing_at(prior.mean)))
    return (
        np.array([[log_cost(instance, layout, one) for layout in layouts] for one in draws]),
        np.array([times.at(np.repeat(one[:, None], len(runs), axis=1)) for one in draws]),
    )


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
    instance: Instance, prior: Prior, worlds: int, time_limit_s: float, seed: int
) -> list[Layout]:
    """The best layout, its runner-up, and the best under parameters drawn from what is open; each kind once."""
    from rackfit.api import solve

    rng = np.random.default_rng(seed)
    each = time_limit_s / (worlds + 1)
    answer = solve(instance, time_limit_s=each, seed=seed)
    found = [answer.layout]
    if answer.search.runner_up is not None:
        found.append(answer.search.runner_up.layout)
    for _ in range(worlds):
        drawn = rng.multivariate_normal(prior.mean, prior.covariance, method="cholesky")
        try:
            found.append(solve(under(instance, drawn), time_limit_s=each, seed=seed).layout)
        except (NoFeasibleLayout, NoLayoutInTime):
            continue
    unlike: dict[frozenset[object], Layout] = {}
    for layout in found:
        unlike.setdefault(frozenset(built(layout).items()), layout)
    return sorted(unlike.values(), key=lambda layout: log_cost(instance, layout, prior.mean))


def candidate_runs(instance: Instance, layouts: list[Layout]) -> list[Run]:
    """One worker of every width of the layouts, at its batch and below: on the question's requests, on their prompts
    with short answers, of which prefill takes most of the time, and on short prompts with their answers, of which it takes none."""
    found: dict[tuple[Group, int, float, float], Run] = {}
    asked = [instance]
    workload = instance.workload.model_copy(update={"spread": None})
    if workload.output_tokens > _SHORT:
        asked.append(_of_lengths(instance, workload, {"output_tokens": _SHORT}))
    if workload.input_tokens > _SHORT_PROMPT:
        short = {"input_tokens": _SHORT_PROMPT, "images": 0.0, "audio_frames": 0}
        asked.append(_of_lengths(instance, workload.first_time(), short))
    for question in asked:
        for layout in layouts:
            for replica in layout.replicas:
                shape = replica.shape
                group = Group(shape.tp, shape.attention_dp, shape.pp, 1, shape.ep)
                for share in _SHARES:
                    users = max(1, round(share * shape.batch))
                    lengths = question.workload.new_tokens, question.workload.output_tokens
                    key = (group, users, *lengths)
                    run = None if key in found else _run(question, group, users, len(found))
                    if run is not None:
                        found[key] = run
    return list(found.values())


def _of_lengths(instance: Instance, workload: Workload, tokens: dict[str, Any]) -> Instance:
    """The question with a workload of other lengths."""
    other = workload.model_copy(update=tokens)
    return resolve_instance_like(instance, instance.scenario.model_copy(update={"workload": other}))


def _run(instance: Instance, group: Group, users: int, number: int) -> Run | None:
    """A run of one worker; ``None`` where it does not hold so many requests."""
    engine = (instance.scenario.engine or "").partition("@")[0]
    workload, chip = instance.workload, instance.cluster.usable[0].chip.name
    most = sequences_that_fit(instance, group, engine)
    if most < users:
        return None
    row = MeasuredRow(
        id=f"{number}", engine=engine, model=instance.model.name, system=chip, precision="",
        input_tokens=workload.new_tokens, output_tokens=workload.output_tokens, concurrency=users,
        decode=group, prefill=None, tpot_s=1.0, ttft_s=None, fixed_lengths=True,
    )  # fmt: skip
    return Run(row, instance, chip, worker_rates(instance, group, 0), None, most)
