"""No chip serves two replicas, two stages or two places of a stage."""

from __future__ import annotations

from collections import Counter

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation

STRUCTURE = True


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Chips that occur more than once."""
    chips = [chip for replica in layout.replicas for chip in replica.chips]
    if len(set(chips)) == len(chips):
        return []
    uses = Counter(chips)
    return [
        Violation("chips_once", f"chip {chip}", f"is used {count} times, at most once is allowed")
        for chip, count in uses.items()
        if count > 1
    ]
