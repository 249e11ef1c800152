"""What leaves a domain fits through its NICs and uplinks."""

from __future__ import annotations

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout, uplink_bytes_per_s
from costmodel.rules import Violation
from costmodel.tolerance import exceeds


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Domains that send more than they can."""
    violations = []
    for index, load in priced.egress_bytes_per_s.items():
        capacity = uplink_bytes_per_s(instance.cluster, index)
        if exceeds(load, capacity):
            message = f"sends {load / 1e9:.1f} GB/s, its uplinks carry {capacity / 1e9:.1f} GB/s"
            name = instance.cluster.domains[index].name
            violations.append(Violation("uplink_capacity", f"domain {name}", message))
    return violations
