"""Every replica that decodes meets the TPOT target."""

from __future__ import annotations

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation
from costmodel.tolerance import apart, exceeds


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Replicas slower than the target."""
    target = instance.slo.tpot
    if target is None or instance.slo.of_replays:
        return []
    return [
        Violation(
            "tpot_target",
            f"replicas[{index}]",
            "TPOT {} ms, the target is {} ms".format(
                *apart(float(price.service.tpot_s) * 1e3, target * 1e3)
            ),
        )
        for index, price in enumerate(priced.replicas)
        if exceeds(float(price.service.tpot_s), target)
    ]
