"""What is left of a layout when the replicas that the judge refuses are left out."""

from __future__ import annotations

import re

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.fleet import domain_shares
from costmodel.rules import Violation

#: rules that a replica may break by where it stands, though its shape keeps them
_OF_PLACES = frozenset({"tpot_target", "ttft_target", "uplink_capacity"})


def mended(
    instance: Instance, layout: Layout, evaluation: Evaluation
) -> tuple[Layout, Evaluation] | None:
    """The layout without replicas that miss targets where they stand, or that links do not carry.

    ``None`` where another rule is broken, or nothing serves without them.
    """
    while evaluation.violations:
        if any(violation.rule not in _OF_PLACES for violation in evaluation.violations):
            return None
        refused = {
            index
            for violation in evaluation.violations
            for index in _refused(instance, layout, violation)
        }
        kept = [one for index, one in enumerate(layout.replicas) if index not in refused]
        roles = {one.role for one in kept}
        if not refused or not ("mixed" in roles or {"prefill", "decode"} <= roles):
            return None
        layout = layout.model_copy(update={"replicas": tuple(kept)})
        evaluation = evaluate(instance, layout)
    return layout, evaluation


def _refused(instance: Instance, layout: Layout, violation: Violation) -> list[int]:
    """The replicas that a violation names; of a domain or unit the last one whose passes cross its links."""
    named = re.match(r"replicas\[(\d+)\]", violation.place)
    if named:
        return [int(named[1])]
    place = re.match(r"(domain r|unit )(\d+)", violation.place)
    if place is None:
        return []
    unit_of = instance.cluster.uplinks.unit_of
    for index in reversed(range(len(layout.replicas))):
        homes = list(domain_shares(instance.cluster, layout.replicas[index].chips))
        here = [home if place[1] == "domain r" else int(unit_of[home]) for home in homes]
        if len(homes) > 1 and int(place[2]) in here:
            return [index]
    return []
