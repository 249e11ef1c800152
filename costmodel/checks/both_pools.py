"""A layout can serve a whole request: a mixed replica, or prefill and decode replicas."""

from __future__ import annotations

from costmodel.checks import Violation
from costmodel.fleet import PricedLayout
from costmodel.instance import Instance
from costmodel.layout import Layout


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """The pool that is missing."""
    roles = {replica.role for replica in layout.replicas}
    if "mixed" in roles or {"prefill", "decode"} <= roles:
        return []
    missing = "a decode pool" if "prefill" in roles else "a prefill pool"
    return [Violation("both_pools", "replicas", f"{missing} or a mixed replica is missing")]
