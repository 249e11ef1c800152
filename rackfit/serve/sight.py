"""What can be said of a question at once, from answers to questions that differ in their targets alone.

A layout keeps its cost and times whatever the targets are. A bound for looser targets holds for tighter ones, as they
allow fewer layouts. The evaluator judges the layout under the new targets before it is shown.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from costmodel.evaluate import evaluate
from costmodel.question.instance import Instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo
from rackfit.cli.question import build_scenario
from rackfit.documents.result import Result
from topology.errors import RackfitError

#: questions without their targets that are remembered, answers of each, and bounds of each
_FAMILIES, _ANSWERS, _BOUNDS = 4, 16, 200


@dataclass
class _Family:
    """Answers to one question under several targets."""

    instance: Instance
    answers: list[Result] = field(default_factory=list)
    bounds: list[tuple[Slo, float]] = field(default_factory=list)


class Sights:
    """Answers given before, and what they say of a new question."""

    def __init__(self) -> None:
        self._families: OrderedDict[str, _Family] = OrderedDict()

    def add(self, result: Result) -> None:
        """Remember an answer."""
        scenario = result.instance.scenario
        free = _without_targets(scenario).model_dump_json()
        family = self._families.setdefault(free, _Family(result.instance))
        self._families.move_to_end(free)
        family.answers = [*family.answers[1 - _ANSWERS :], result]
        told = (scenario.slo, result.certificate.bound_usd_per_m_output_tokens)
        family.bounds = [*family.bounds[1 - _BOUNDS :], told]
        while len(self._families) > _FAMILIES:
            self._families.popitem(last=False)

    def of(self, asked: str) -> str | None:
        """JSON of the nearest layout known and the best bound known, ``None`` where there is nothing.

        ``usd_per_m_output_tokens`` of the layout; ``misses``: the targets that it breaks, in words; ``bound``: no
        layout costs less (0: not known); ``layout`` and what belongs to it as in an answer.
        """
        try:
            scenario = build_scenario(asked)
        except RackfitError:
            return None  # the answer says what is wrong
        family = self._families.get(_without_targets(scenario).model_dump_json())
        if family is None:
            return None
        near = min(family.answers, key=lambda one: _distance(one, scenario.slo))
        instance = replace(family.instance, scenario=scenario)
        evaluation = evaluate(instance, near.layout)
        bound = max((b for slo, b in family.bounds if _allows(slo, scenario.slo)), default=0.0)
        found = replace(
            near,
            instance=instance,
            search=replace(near.search, evaluation=evaluation, runner_up=None),
        )
        shown = ("evaluation", "layout", "memory", "links")
        document = found.as_dict()
        return json.dumps(
            {
                "bound": bound, "misses": [str(broken) for broken in evaluation.violations],
                **{key: document[key] for key in shown},
            },
            allow_nan=False,
        )  # fmt: skip


def _without_targets(scenario: Scenario) -> Scenario:
    return scenario.model_copy(update={"slo": Slo()})


def _allows(looser: Slo, tighter: Slo) -> bool:
    """Whether what meets the tighter targets meets the looser ones."""
    pairs = ((looser.ttft, tighter.ttft), (looser.tpot, tighter.tpot))
    return all(one is None or (other is not None and other <= one) for one, other in pairs)


def _distance(result: Result, slo: Slo) -> tuple[float, float]:
    """By how much an answer misses targets, then what it costs."""
    found = result.evaluation
    pairs = ((found.ttft_s, slo.ttft), (found.tpot_s, slo.tpot))
    over = max(
        (got / most for got, most in pairs if got is not None and most is not None), default=0.0
    )
    cost = found.usd_per_m_output_tokens
    return max(1.0, over), float("inf") if cost is None else cost
