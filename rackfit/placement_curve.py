"""The trade-off between even chips and copies of tokens to other nodes, drawn as SVG."""

from __future__ import annotations

from pathlib import Path

from costmodel.expert_load import ExpertLoads
from rackfit.chart import Chart, Series
from rackfit.placement import Placed, PlaceOptions
from rackfit.placement_search import chooses_nodes
from topology.errors import InstanceError, Problem


def check_curve_path(curve: Path | None, out: Path | None) -> None:
    """Raise ``InstanceError`` unless ``curve`` is an SVG file of its own."""
    if curve is None:
        return
    if curve.suffix.lower() != ".svg":
        raise InstanceError(Problem("--curve", f"{curve}: the curve is SVG; name it FILE.svg"))
    if out is not None and curve.absolute() == out.absolute():
        raise InstanceError(Problem("--curve", f"{curve} is also where --out writes"))


def check_curve(loads: ExpertLoads, options: PlaceOptions, moved: bool) -> None:
    """Raise ``InstanceError`` where there is nothing to draw: a placement without that choice.

    That is on one node, without router groups, for several windows at once, or ``moved`` from a
    running placement.
    """
    if not chooses_nodes(loads, options, moved):
        raise InstanceError(
            Problem(
                "--curve",
                "needs --gpus-per-node below --gpus, --groups above 1, one workload (or --objective "
                "sum) and no --current",
            )
        )


def curve_svg(placed: Placed) -> str:
    """Busiest over mean chip against remote copies per token, each point the mean over layers."""
    points = sorted((copies, balance) for balance, copies in placed.trade_off)
    chosen = (float(placed.copies.mean()), float(placed.imbalance.mean()))
    return Chart(
        "Balance against traffic",
        "copies to other nodes per token",
        "busiest over mean chip",
        [Series("placements tried", points), Series("chosen layer by layer", [chosen])],
    ).svg(standalone=True)
