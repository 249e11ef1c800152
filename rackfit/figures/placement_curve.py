"""The trade-off between even chips and copies of tokens to other nodes, drawn as SVG."""

from __future__ import annotations

from pathlib import Path

from costmodel.experts.expert_load import ExpertLoads
from rackfit.figures.chart import Chart, Series
from rackfit.figures.drawing import chart_svg, check_charts
from rackfit.placement.placed import Placed
from solver.experts.request import PlaceOptions, chooses_nodes
from topology.errors import InstanceError, Problem


def check_curve_path(curve: Path | None) -> None:
    """Raise ``InstanceError`` unless ``curve`` is called an SVG file and can be drawn."""
    if curve is not None and curve.suffix.lower() != ".svg":
        raise InstanceError(Problem("--curve", f"{curve}: the curve is SVG; name it FILE.svg"))
    if curve is not None:
        check_charts("--curve")


def check_curve(
    loads: ExpertLoads, options: PlaceOptions, moved: bool, together: bool = False
) -> None:
    """Raise ``InstanceError`` where there is nothing to draw: a placement without that choice.

    That is on one node, with neither router groups nor experts known to be used ``together``, for
    several windows at once, or ``moved`` from a running placement.
    """
    if not chooses_nodes(loads, options, moved, together):
        raise InstanceError(
            Problem(
                "--curve",
                "needs --gpus-per-node below --gpus, --groups above 1 or --coactivation, one workload "
                "(or --objective sum) and no --current",
            )
        )


def curve_svg(placed: Placed) -> str:
    """Load of the busiest chip above the mean against remote copies per token, means over layers.

    The line chooses among the placements tried layer by layer, the dearer a copy the further left.
    Where experts used together are known, EPLB and random placements stand beside, with what is saved.
    """
    found = placed.compared
    series = [
        Series("chosen layer by layer", [point(*pair) for pair in placed.by_layer]),
        Series("placements tried", [point(*pair) for pair in placed.trade_off], "dots"),
        Series(
            f"chosen: a copy worth {placed.options.copy_cost:g} layer times",
            [point(float(placed.imbalance.mean()), float(placed.copies.mean()))],
            "dots",
        ),
    ]
    if found is not None:
        for name, other in (("EPLB", found.eplb), ("random", found.random)):
            saved = found.saving(other)
            words = (
                f"{name}: chosen has {abs(saved):.1%} {'fewer' if saved >= 0 else 'more'} copies"
            )
            series.append(Series(words, [point(other.imbalance, other.copies)], "dots"))
    across, up = "copies to other nodes per token", "busiest chip above the mean, %"
    return chart_svg(Chart("Balance against traffic", across, up, series))


def point(balance: float, copies: float) -> tuple[float, float]:
    """A point of the chart: copies, and percent of load above the mean."""
    return copies, 100 * (balance - 1)
