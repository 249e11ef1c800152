"""No chip serves two replicas, two stages or two places of a stage."""

from __future__ import annotations

from collections import Counter

from costmodel.checks import Violation
from costmodel.fleet import PricedLayout
from costmodel.instance import Instance
from costmodel.layout import Layout


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Chips that occur more than once."""
    uses = Counter(chip for replica in layout.replicas for chip in replica.chips)
    return [
        Violation("chips_once", f"chip {chip}", f"is used {count} times, at most once is allowed")
        for chip, count in uses.items()
        if count > 1
    ]
