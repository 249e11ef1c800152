"""One layout in every world: what it costs there, and whether it meets the question's targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.worlds.ensemble import place_of

#: a cost up to so much above another is as good
CLOSE = 0.01
QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Costs:
    """$/M output tokens of a layout in every world, and the same where a world breaks a rule: infinite."""

    served: tuple[float, ...]
    kept: tuple[float, ...]

    def at(self, confidence: float) -> float:
        """The least cost that it does not exceed in this share of the worlds; infinite where more break a rule."""
        return sorted(self.kept)[place_of(confidence, len(self.kept))]


def costs_of(worlds: Sequence[Instance], layout: Layout) -> Costs:
    """Price a layout that breaks no rule of structure in every world, by the evaluator."""
    served, kept = [], []
    for world in worlds:
        found = evaluate(world, layout, structure_holds=True)
        cost = found.usd_per_m_output_tokens
        served.append(float("inf") if cost is None else cost)
        kept.append(float("inf") if found.violations else served[-1])
    return Costs(tuple(served), tuple(kept))


@dataclass(frozen=True)
class Across:
    """An answer over the worlds.

    ``best``: in every world the least that any layout found costs there, targets met. ``confidence`` and what belongs
    to it: only where the question asked for one. ``bound_usd_per_m_output_tokens``: in at least this share of the
    worlds every layout costs, or in so many misses a target, that no layout's cost at the confidence is below it.
    """

    costs: Costs
    best: tuple[float, ...]
    confidence: float | None = None
    usd_per_m_output_tokens: float | None = None
    bound_usd_per_m_output_tokens: float | None = None
    #: what the layout with the least cost at the fitted parameters costs at the confidence; infinite: misses a target
    plain_usd_per_m_output_tokens: float | None = None

    @property
    def share_close(self) -> float:
        """Share of the worlds in which it costs at most 1 % more than the best layout found, targets met."""
        close = [
            own <= best * (1.0 + CLOSE)
            for own, best in zip(self.costs.kept, self.best, strict=True)
            if best < float("inf")
        ]
        return sum(close) / len(self.best)

    @property
    def share_kept(self) -> float:
        """Share of the worlds in which it breaks no rule."""
        return float(np.isfinite(self.costs.kept).mean())

    def quantiles(self) -> dict[str, float | None]:
        """Quantiles of what it costs, whether or not it meets its targets; ``None`` where it serves nothing."""
        ordered = sorted(self.costs.served)
        at = {f"p{100 * q:.0f}": ordered[place_of(q, len(ordered))] for q in QUANTILES}
        return {name: _finite(value) for name, value in at.items()}

    def as_dict(self) -> dict[str, Any]:
        """The published figures."""
        return {
            "parameter_sets": len(self.best),
            "share_within_1_percent_of_best": self.share_close,
            "share_meeting_targets": self.share_kept,
            "usd_per_m_output_tokens": self.quantiles(),
            "confidence": self.confidence,
            "usd_per_m_output_tokens_at_confidence": _finite(self.usd_per_m_output_tokens),
            "bound_usd_per_m_output_tokens_at_confidence": _finite(
                self.bound_usd_per_m_output_tokens
            ),
            "usd_per_m_output_tokens_without_confidence": _finite(
                self.plain_usd_per_m_output_tokens
            ),
        }


def across(worlds: Sequence[Instance], layouts: Sequence[Layout]) -> Across | None:
    """The first of some layouts over the worlds, beside the others; ``None`` without worlds."""
    if not worlds:
        return None
    costs = [costs_of(worlds, layout) for layout in layouts]
    return Across(costs[0], least_of(costs))


def least_of(costs: Sequence[Costs]) -> tuple[float, ...]:
    """World by world the least of several layouts' costs, targets met."""
    return tuple(min(row) for row in zip(*(one.kept for one in costs), strict=True))


def _finite(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else value
