"""Replicas take chips as they are sold: whole trays, or one rectangular slice.

What that is, the cluster's file says, and the question which of its ways holds. See :mod:`topology.routing.granularity`.
"""

from __future__ import annotations

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation

STRUCTURE = True


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Replicas with a part of a unit, with chips that are no slice, or with more than one slice."""
    violations = []
    cluster = instance.cluster
    for index, replica in enumerate(layout.replicas):
        taken: dict[int, list[int]] = {}
        for chip in replica.chips:
            if chip in cluster:
                placed = cluster.chip(chip)
                taken.setdefault(placed.domain, []).append(placed.position)
        for domain, positions in sorted(taken.items()):
            home = cluster.domains[domain]
            found = home.granularity.refusal(positions)
            if found is None and len(taken) > 1 and not home.granularity.spans:
                found = f"is one of {len(taken)} slices of a replica, which takes one"
            if found is not None:
                violations.append(
                    Violation("granularity", f"replicas[{index}]", f"{home.name} {found}")
                )
    return violations
