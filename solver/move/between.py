"""The question while replicas of two layouts run, and whether both stand on the same chips."""

from __future__ import annotations

from dataclasses import replace

from costmodel.layout.layout import Layout
from costmodel.models.spec import ModelSpec
from costmodel.question.instance import Instance
from costmodel.question.workload import Slo
from topology.errors import InstanceError, Problem


def through(before: Instance, after: Instance, during: float | None) -> Instance:
    """The question while replicas of both layouts run: of each target the looser one, of the rates the smaller.

    ``during``: requests/s to be served all the time, instead.
    """
    limits = [
        None if None in pair else max(one for one in pair if one is not None)
        for pair in (
            (before.slo.ttft, after.slo.ttft),
            (before.slo.tpot, after.slo.tpot),
        )
    ]
    rates = [one.scenario.rate for one in (before, after) if one.scenario.rate is not None]
    rate = during if during is not None else min(rates, default=None)
    of_replays = before.slo.of_replays or after.slo.of_replays
    slo = Slo(ttft=limits[0], tpot=limits[1], of_replays=of_replays)
    scenario = after.scenario.model_copy(update={"slo": slo, "rate": rate})
    return replace(after, scenario=scenario)


def check_same_cluster(before: Instance, layout: Layout, after: Instance) -> None:
    """Raise ``InstanceError`` where chips that run are not in the other cluster, or are others there."""
    problems = []
    if before.model != after.model:
        problems.append(_another(before.model, after.model))
    for chip in (chip for replica in layout.replicas for chip in replica.chips):
        if chip not in before.cluster:
            problems.append(Problem(f"the running layout: {chip}", "is no chip of its cluster"))
            break
        if chip not in after.cluster:
            message = f"runs, and {after.cluster.name} has no such chip"
            problems.append(Problem(chip, message))
            break
        kinds = [one.cluster.chip(chip).chip.name for one in (before, after)]
        if kinds[0] != kinds[1]:
            message = f"is a {kinds[0]} where it runs and a {kinds[1]} in {after.cluster.name}"
            problems.append(Problem(chip, message))
            break
    if problems:
        raise InstanceError(problems)


def _another(before: ModelSpec, after: ModelSpec) -> Problem:
    """Why what runs cannot go on as another model: it has another name, or what differs of the same."""
    if before.name != after.name:
        return Problem("model", f"is {after.name}, the running layout serves {before.name}")
    values = {
        "weights": (before.native_dtype, after.native_dtype),
        "KV cache": (before.kv_dtype, after.kv_dtype),
        "drafts": tuple(
            "none" if own.drafter is None else own.drafter.spec.name for own in (before, after)
        ),
    }
    changed = [f"{what} {was} to {now}" for what, (was, now) in values.items() if was != now]
    message = (
        f"replicas of {after.name} that run cannot change {' and '.join(changed) or 'its config'}"
    )
    return Problem("model", f"{message}: ask for what runs")
