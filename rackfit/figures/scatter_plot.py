"""Predicted against measured on logarithmic axes: one dot per row, lines at ±25 %."""

from __future__ import annotations

from collections.abc import Sequence

from rackfit.figures.chart import Chart, Series


def scatter_chart(
    measured: Sequence[float], predicted: Sequence[float], labels: Sequence[str], unit: str
) -> Chart:
    """The plot; a series by label."""
    values = [*measured, *predicted]
    low, high = min(values), max(values)
    rows: dict[str, list[tuple[float | str, float]]] = {name: [] for name in sorted(set(labels))}
    for x, y, name in zip(measured, predicted, labels, strict=True):
        rows[name].append((x, y))
    dots = [Series(name, points, "dots") for name, points in rows.items()]
    lines = [
        Series(name, [(low, factor * low), (high, factor * high)], "line")
        for name, factor in (("as measured", 1.0), ("25 % more", 1.25), ("a fifth less", 0.8))
    ]
    across, up = f"measured, {unit}", f"predicted, {unit}"
    return Chart("Predicted against measured", across, up, [*dots, *lines], log_x=True, log_y=True)
