"""Bounds of a shape's experts, whole on chips or, where the shape has no slots, each cut over all chips of a stage.

A cut leaves nothing to place: every chip has the same share of each expert's tokens and weights, which is what the
evaluator prices (:mod:`costmodel.replica.stage_experts`).
"""

from __future__ import annotations

import numpy as np

from costmodel.experts.moe_load import cut_shares, touch_probability
from solver.bounds.experts.expert_bounds import GRID, Array, ExpertBounds


class ShapeExperts:
    """What ``whole`` says of experts on slots, and the same of cut ones."""

    def __init__(self, whole: ExpertBounds):
        self.whole = whole
        self._on_grid: Array | None = None

    def fewest(self, chips: int, slots: int) -> int:
        """Experts of a layer that a stage holds at least, on average over the layers, with copies."""
        return self.whole.fewest(chips, slots) if slots else self.whole.num_experts

    def load(self, chips: int, slots: int) -> tuple[float, float]:
        """Mean and least over layers of the busiest chip's share."""
        return self.whole.load(chips, slots) if slots else (1.0 / chips, 1.0 / chips)

    def layer_loads(self, chips: int, slots: int) -> Array:
        """``[layers]``: bound on the busiest chip's share in each layer."""
        if slots:
            return self.whole.layer_loads(chips, slots)
        return np.full(len(self.whole.loads), 1.0 / chips)

    def touched_on_grid(self, chips: int, slots: int) -> tuple[Array, Array]:
        """``[grid]``: mean and least over layers of the experts the busiest chip touches at least."""
        if slots:
            return self.whole.touched_on_grid(chips, slots)
        if self._on_grid is None:
            reached = [self._reached(tokens) for tokens in GRID]
            self._on_grid = np.array([[own.mean(), own.min()] for own in reached]).T
        mean, least = self._on_grid / chips
        return mean, least

    def touched_by_layer(self, chips: int, slots: int, tokens: float) -> Array:
        """``[layers]``: experts that the busiest chip touches at least, at exactly these tokens."""
        if slots:
            return self.whole.touched_by_layer(chips, slots, tokens)
        return self._reached(tokens) / chips

    def touched(self, tables: Array, tokens: Array) -> Array:
        """Rows of :meth:`touched_on_grid` at the grid point below ``tokens``."""
        return self.whole.touched(tables, tokens)

    def _reached(self, tokens: float) -> Array:
        """``[layers]``: experts that so many tokens reach."""
        alone = touch_probability(self.whole.loads, self.whole.top_k, tokens, 1.0)
        return cut_shares(alone, 1).touched[:, 0]
