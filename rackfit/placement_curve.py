"""The trade-off between even chips and copies of tokens to other nodes, drawn as SVG."""

from __future__ import annotations

from rackfit.chart import Chart, Series
from rackfit.placement import Placed
from topology.errors import InstanceError, Problem


def curve_svg(placed: Placed) -> str:
    """Busiest over mean chip against remote copies per token, each point the mean over layers.

    Raises ``InstanceError`` where the placement had no such choice: one node, no router groups,
    several windows, or a running placement to start from.
    """
    points = sorted((copies, balance) for balance, copies in placed.found.trade_off)
    if not points:
        raise InstanceError(
            Problem(
                "--curve",
                "needs --gpus-per-node below --gpus, --groups above 1, one workload and no --current",
            )
        )
    chosen = (float(placed.copies.mean()), float(placed.imbalance.mean()))
    return Chart(
        "Balance against traffic",
        "copies to other nodes per token",
        "busiest over mean chip",
        [Series("placements tried", points), Series("chosen layer by layer", [chosen])],
    ).svg(standalone=True)
