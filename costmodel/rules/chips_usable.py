"""Every chip of a layout exists, works and is free."""

from __future__ import annotations

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation

STRUCTURE = True


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Chips that are not in the cluster or cannot be used."""
    cluster, usable = instance.cluster, instance.cluster.usable_ids
    violations = []
    for index, replica in enumerate(layout.replicas):
        for chip in replica.chips:
            if chip not in usable:
                fault = "failed or taken" if chip in cluster else "not in the cluster"
                violations.append(
                    Violation("chips_usable", f"replicas[{index}]", f"chip {chip} is {fault}")
                )
    if not layout.replicas:
        violations.append(Violation("chips_usable", "replicas", "the layout has no replica"))
    return violations
