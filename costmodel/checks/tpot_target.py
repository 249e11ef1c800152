"""Every replica that decodes meets the TPOT target."""

from __future__ import annotations

from costmodel.checks import Violation
from costmodel.fleet import PricedLayout
from costmodel.instance import Instance
from costmodel.layout import Layout
from costmodel.tolerance import exceeds


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Replicas slower than the target."""
    target = instance.slo.tpot
    if target is None:
        return []
    return [
        Violation(
            "tpot_target",
            f"replicas[{index}]",
            f"TPOT {float(price.service.tpot_s) * 1e3:.2f} ms, the target is {target * 1e3:.2f} ms",
        )
        for index, price in enumerate(priced.replicas)
        if exceeds(float(price.service.tpot_s), target)
    ]
