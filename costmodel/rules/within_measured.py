"""Where the question asks for it, every replica has a role and widths that were measured on its chips."""

from __future__ import annotations

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.question.measured_shapes import widths_measured
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Replicas that nobody measured the like of."""
    found = []
    for index, replica in enumerate(layout.replicas):
        shape = replica.shape
        chips = sorted({instance.cluster.chip(chip).chip.name for chip in replica.chips})
        for chip in chips:
            if not kept_within(
                instance, chip, replica.role, shape.tp, shape.attention_dp, shape.pp
            ):
                message = (
                    f"no {replica.role} worker of TP {shape.tp}, attention DP {shape.attention_dp} and "
                    f"{shape.pp} stages was measured on {chip}"
                )
                found.append(Violation("within_measured", f"replicas[{index}]", message))
    return found


def kept_within(
    instance: Instance, chip: str, role: str, tp: int, attention_dp: int, pp: int
) -> bool:
    """Whether the question allows workers of this kind, measured or not."""
    if not instance.scenario.within_measured:
        return True
    engine = instance.engine
    return widths_measured(
        chip, role, tp, attention_dp, pp, None if engine is None else engine.engine
    )
