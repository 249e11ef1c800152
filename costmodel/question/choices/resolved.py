"""The questions among which a search chooses: one for each combination of values."""

from __future__ import annotations

from dataclasses import replace

from costmodel.question.choices.options import Values
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.what_if import model_of
from topology.errors import InstanceError, Problem


def resolve_choosing(scenario: Scenario) -> Instance:
    """The instance of a scenario that may leave options to the search, with the first value of each.

    Raises ``InstanceError`` with every problem that some value has.
    """
    choices = scenario.choices
    assert choices is not None
    found: list[Instance] = []
    problems: dict[Problem, None] = {}
    for values in choices.one_by_one():
        try:
            found.append(resolve_instance(scenario.choosing(values)))
        except InstanceError as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        raise InstanceError(list(problems))
    return replace(found[0], scenario=scenario)


def alternatives(instance: Instance) -> list[tuple[Values, Instance]]:
    """Every combination of values with its question, which leaves nothing open."""
    choices = instance.scenario.choices
    assert choices is not None
    found: list[tuple[Values, Instance]] = []
    for values in choices.combinations():
        scenario, model = instance.scenario.choosing(values), instance.model
        # without drafts, which may be the first value, nothing drafts beside the model
        if {"kv_dtype", "weight_dtype", "drafts"} & values.keys():
            model = model_of(scenario)
        found.append((values, replace(instance, scenario=scenario, model=model)))
    return found
