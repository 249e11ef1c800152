r"""The bytes that a layout states for the KV of a chip are those of its sequences.

``bytes = sequences of the chip's rank * bytes of one on the chip``, in flight at their final length; what a layout
leaves out is not checked.
"""

from __future__ import annotations

from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.replica.kv_bytes import bytes_by_chip
from costmodel.rules import Violation
from costmodel.tolerance import exceeds


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """The first chip of each replica whose stated bytes are others."""
    violations = []
    known: dict[object, float] = {}
    for index, replica in enumerate(layout.replicas):
        message = _wrong(instance, replica, known)
        if message:
            violations.append(Violation("kv_bytes", f"replicas[{index}].kv", message))
    return violations


def _wrong(instance: Instance, replica: Replica, known: dict[object, float]) -> str | None:
    stated: dict[tuple[str, str, bool], float] = {}
    for share in replica.kv:
        if share.bytes is not None:
            key = (share.chip, share.tier, share.idle)
            stated[key] = stated.get(key, 0.0) + share.bytes
    if not stated:
        return None
    for chip, held in bytes_by_chip(instance, replica, known):
        for (tier, waits), found in held.items():
            said = stated.get((chip, tier, waits), found)
            if exceeds(said, found) or exceeds(found, said):
                return (
                    f"chip {chip}: {said:.10g} bytes of KV in {tier} are stated, its sequences take "
                    f"{found:.10g}; leave bytes out, or state what they take"
                )
    return None
