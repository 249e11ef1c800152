"""What launch files say of KV in tiers: nothing, so that caches there are refused and idle KV is noted."""

from __future__ import annotations

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout
from rackfit.exporters.launch.limit import Limit


def tier_limits(target: str, layout: Layout) -> list[Limit]:
    """Replicas whose passes read caches from a tier, which no engine's launch options ask for."""
    found = []
    for index, replica in enumerate(layout.replicas):
        tiers = sorted({share.tier for share in replica.kv if not share.idle} - {"hbm"})
        if tiers:
            text = f"every pass reads KV from {tiers[0]}; {target} keeps the KV of running requests in HBM"
            found.append(Limit(f"replicas[{index}]", text, approximable=False))
    return found


def tier_notes(evaluation: Evaluation) -> list[str]:
    """Room for idle KV that the files do not ask for."""
    return [
        f"{use.bytes / 1e9:,.0f} GB of idle KV in {use.tier} of the {use.role} replicas: set up the engine's "
        "hierarchical cache for them; these files do not, and without it prompts are computed again"
        for use in evaluation.kv_tiers
        if use.idle
    ]
