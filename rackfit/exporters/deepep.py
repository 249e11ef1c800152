"""Which expert-parallel widths DeepEP's kernels are configured for."""

from __future__ import annotations

from costmodel.question.engine import load_engine
from rackfit.exporters.deployment import Deployment, Server


def uses_deepep(deployment: Deployment, server: Server) -> bool:
    """Whether DeepEP has a configuration for the server's width (NVIDIA chips only)."""
    cluster = deployment.instance.cluster
    vendor = cluster.chip(server.replica.chips[0]).chip.vendor
    return vendor == "NVIDIA" and server.replica.shape.ep in load_engine("sglang").expert_widths


def exchange_notes(deployment: Deployment, fallback: str) -> list[str]:
    """Which widths exchange tokens in another way than the figures assume."""
    widths = sorted(
        {
            server.replica.shape.ep
            for server in deployment.servers
            if server.replica.shape.ep > 1 and not uses_deepep(deployment, server)
        }
    )
    if not widths:
        return []
    listed = ", ".join(str(width) for width in widths)
    return [
        f"expert-parallel width {listed}: DeepEP has no configuration for it, so experts exchange "
        f"tokens by collectives ({fallback}); the figures assume all-to-all"
    ]
