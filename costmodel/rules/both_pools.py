"""A layout can serve a whole request: a mixed replica, or prefill and decode replicas."""

from __future__ import annotations

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """The pool that is missing."""
    roles = {replica.role for replica in layout.replicas}
    if "mixed" in roles or {"prefill", "decode"} <= roles:
        return []
    missing = "a decode pool" if "prefill" in roles else "a prefill pool"
    return [Violation("both_pools", "replicas", f"{missing} or a mixed replica is missing")]
