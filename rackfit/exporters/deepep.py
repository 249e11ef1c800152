"""Which expert-parallel widths DeepEP's kernels are configured for."""

from __future__ import annotations

from rackfit.exporters.deployment import Deployment, Server
from rackfit.exporters.options import option_table


def uses_deepep(deployment: Deployment, server: Server) -> bool:
    """Whether DeepEP has a configuration for the server's width (NVIDIA chips only)."""
    cluster = deployment.instance.cluster
    vendor = cluster.chip(server.replica.chips[0]).chip.vendor
    widths = option_table("sglang").data["deepep_widths"]
    return vendor == "NVIDIA" and server.replica.shape.ep in widths


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
