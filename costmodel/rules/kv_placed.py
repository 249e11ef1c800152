"""KV sequences add up to the batch and lie on the replica's own chips."""

from __future__ import annotations

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation

STRUCTURE = True


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Replicas whose KV shares do not add up, or lie elsewhere."""
    violations = []
    for index, replica in enumerate(layout.replicas):
        place = f"replicas[{index}].kv"
        placed = sum(share.sequences for share in replica.kv if not share.idle)
        if placed != replica.shape.batch:
            message = f"{placed} sequences placed, the batch is {replica.shape.batch}"
            violations.append(Violation("kv_placed", place, message))
        strange = sorted({share.chip for share in replica.kv}.difference(replica.kv_chips))
        if strange:
            message = f"chip {strange[0]} is not one of the replica's that hold KV"
            violations.append(Violation("kv_placed", place, message))
    return violations
