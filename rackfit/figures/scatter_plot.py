"""Predicted against measured on logarithmic axes, as SVG: one dot per row, lines at ±25 %."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10

from rackfit.quoting import markup

_SIZE, _MARGIN = 480.0, 56.0
_COLOURS = ("#3366aa", "#cc6633", "#448844", "#884499", "#996633", "#228899", "#aa3355", "#666666")


def scatter_svg(
    measured: Sequence[float], predicted: Sequence[float], labels: Sequence[str], unit: str
) -> str:
    """The plot; colours by label."""
    values = [*measured, *predicted]
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    high = max(high, low + 1)

    def place(value: float) -> float:
        return (log10(value) - low) / (high - low) * _SIZE

    def dot(x: float, y: float) -> tuple[float, float]:
        return _MARGIN + place(x), _MARGIN + _SIZE - place(y)

    names = sorted(set(labels))
    colour = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(names)}
    full = _SIZE + 2 * _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full + 160:g} {full:g}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect x="{_MARGIN}" y="{_MARGIN}" width="{_SIZE}" height="{_SIZE}" fill="none" stroke="#999"/>',
    ]
    for power in range(low, high + 1):
        x, y = dot(10.0**power, 10.0**power)
        lines.append(
            f'<text x="{x:.1f}" y="{full - 36:g}" text-anchor="middle">{10.0**power:g}</text>'
        )
        lines.append(f'<text x="48" y="{y:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for factor, dash in ((1.0, ""), (1.25, "4"), (0.8, "4")):
        start, end = 10.0**low, 10.0**high
        (x1, y1), (x2, y2) = dot(start, start), dot(end, end)
        shift = log10(factor) / (high - low) * _SIZE
        lines.append(
            f'<line x1="{x1:.1f}" y1="{y1 - shift:.1f}" x2="{x2:.1f}" y2="{y2 - shift:.1f}" '
            f'stroke="#999" stroke-dasharray="{dash}"/>'
        )
    for x_value, y_value, name in zip(measured, predicted, labels, strict=True):
        x, y = dot(x_value, y_value)
        lines.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour[name]}" fill-opacity="0.6"/>'
        )
    for i, name in enumerate(names):
        y = _MARGIN + 16 * i
        lines.append(f'<circle cx="{full:g}" cy="{y:g}" r="4" fill="{colour[name]}"/>')
        lines.append(f'<text x="{full + 10:g}" y="{y + 4:g}">{markup(name)}</text>')
    lines.append(
        f'<text x="{_MARGIN + _SIZE / 2:g}" y="{full - 14:g}" text-anchor="middle">measured, {markup(unit)}</text>'
    )
    lines.append(f'<text x="{_MARGIN:g}" y="{_MARGIN - 12:g}">predicted, {markup(unit)}</text>')
    lines.append("</svg>")
    return "\n".join(lines)
