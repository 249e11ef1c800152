"""Communication of a feed-forward layer sharded over a torus: which layout moves least.

Weight-stationary in one or two dimensions and weight-gathered layouts, in elements moved per chip
through its whole scale-up bandwidth. *Source:* Pope et al., "Efficiently Scaling Transformer
Inference" (2022), sections 3.2-3.3; for three axes used one by one, the scaling book.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt


def weight_stationary_1d(tokens: float, d_model: float) -> float:
    """Elements per chip: *2 B L E*, all-gather and reduce-scatter of the activations.

    Does not fall with the number of chips.
    """
    return 2 * tokens * d_model


def weight_stationary_2d(
    tokens: float, d_model: float, d_ff: float, across_model: float, across_ff: float
) -> float:
    """Elements per chip: *2 B L (E/X + F/YZ)* on X chips across E and YZ across F."""
    return 2 * tokens * (d_model / across_model + d_ff / across_ff)


def best_split(num_chips: float, d_model: float, d_ff: float) -> tuple[float, float]:
    """X and YZ that make the two-dimensional layout cheapest: *X = sqrt(n E / F)*."""
    across_model = sqrt(num_chips * d_model / d_ff)
    return across_model, num_chips / across_model


def weight_gathered(
    tokens: float, d_model: float, d_ff: float, num_chips: float, gathered: float
) -> float:
    """Elements per chip: *2 E F N/n + 2 B L E / N*; with all chips gathered activations stay put."""
    weights = 2 * d_model * d_ff * gathered / num_chips
    return weights + (2 * tokens * d_model / gathered if gathered < num_chips else 0.0)


def best_gather(tokens: float, d_ff: float, num_chips: float) -> float:
    """Number of chips over which gathering weights is cheapest: *N = sqrt(B L n / F)*."""
    return sqrt(tokens * num_chips / d_ff)


def cheapest_layout(tokens: float, d_model: float, d_ff: float, sides: Sequence[int]) -> str:
    """``"2D"``, or the axes weights are gathered over (``"X"``, ``"XY"``, ``"XYZ"``)."""
    x, rest = sides[0], prod(sides[1:])
    moved = {"2D": weight_stationary_2d(tokens, d_model, d_ff, x, rest)}
    for number in range(1, len(sides) + 1):
        name = "XYZ"[:number]
        moved[name] = weight_gathered(tokens, d_model, d_ff, prod(sides), prod(sides[:number]))
    return min(moved, key=moved.__getitem__)
