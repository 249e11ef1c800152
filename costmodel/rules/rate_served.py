"""The fleet serves the request rate that was asked for."""

from __future__ import annotations

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation
from costmodel.tolerance import exceeds


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """The shortfall, if any."""
    wanted = instance.scenario.rate
    if wanted is None or not exceeds(wanted, priced.requests_per_s):
        return []
    message = f"serves {priced.requests_per_s:.3f} requests/s, {wanted:g} are asked for"
    return [Violation("rate_served", "replicas", message)]
