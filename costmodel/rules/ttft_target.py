"""Every replica that prefills meets the TTFT target, hand-over to the decode pool included."""

from __future__ import annotations

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation
from costmodel.tolerance import apart, exceeds


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Replicas slower than the target."""
    target = instance.slo.ttft
    if target is None or instance.slo.of_replays:
        return []
    times = [priced.ttft_s(index) for index in range(len(layout.replicas))]
    return [
        Violation(
            "ttft_target",
            f"replicas[{index}]",
            "TTFT {} ms, the target is {} ms".format(*apart(seconds * 1e3, target * 1e3)),
        )
        for index, seconds in enumerate(times)
        if exceeds(seconds, target)
    ]
