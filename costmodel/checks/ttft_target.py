"""Every replica that prefills meets the TTFT target, hand-over to the decode pool included."""

from __future__ import annotations

from costmodel.checks import Violation
from costmodel.fleet import PricedLayout
from costmodel.instance import Instance
from costmodel.layout import Layout
from costmodel.tolerance import exceeds


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Replicas slower than the target."""
    target = instance.slo.ttft
    if target is None:
        return []
    times = [priced.ttft_s(index) for index in range(len(layout.replicas))]
    return [
        Violation(
            "ttft_target",
            f"replicas[{index}]",
            f"TTFT {seconds * 1e3:.2f} ms, the target is {target * 1e3:.2f} ms",
        )
        for index, seconds in enumerate(times)
        if exceeds(seconds, target)
    ]
