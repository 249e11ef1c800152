"""Intervals of an evaluation's figures, and what a difference between two layouts is worth.

Both come from the profile's held-out errors (:class:`costmodel.question.profile_parts.HeldOut`), none of which is
assumed. A replica's rate is its sequences over TPOT, so that rates and money are off as TPOT is. Two
layouts of one question share most of that: a difference between them is judged by the narrower noise of
ratios.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from costmodel.question.instance import Instance
from costmodel.question.profile import Profile

#: confidence of printed intervals
CONFIDENCE = 0.9

Ends = tuple[float, float]


@dataclass(frozen=True)
class Intervals:
    """Low and high ends at one confidence, in the figures' own units; ``None``: not known."""

    confidence: float
    tpot_s: Ends
    ttft_s: Ends | None
    ttft_mean_s: Ends | None
    output_tokens_per_s: Ends | None
    output_tokens_per_s_per_gpu: Ends | None
    usd_per_m_output_tokens: Ends | None
    usd_per_m_tokens: Ends | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data: every interval a list ``[low, high]``."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
        }


@dataclass(frozen=True)
class Figures:
    """What intervals are made of: an evaluation's figures, in its units.

    ``offered_per_s`` requests the layout could serve, ``served_per_s`` those it is asked for;
    ``fixed_usd_share``: part of the money that a request costs whatever the rate (rent of tiers).
    """

    tpot_s: float
    ttft_s: float
    ttft_mean_s: float
    offered_per_s: float
    served_per_s: float
    chips: int
    output_tokens: float
    usd_per_m_output_tokens: float | None
    usd_per_m_tokens: float | None
    fixed_usd_share: float


def intervals_of(
    instance: Instance,
    figures: Figures,
    confidence: float = CONFIDENCE,
    *,
    unfitted: Collection[str] = (),
) -> Intervals | None:
    """Intervals of figures; ``None`` for a profile that was not cross-validated.

    ``unfitted``: chips of them that no fit saw.
    """
    held_out = instance.profile.held_out
    if held_out is None:
        return None
    confidence = min(confidence, held_out.most_confidence)
    shifts = instance.profile.shifts(unfitted)
    low, high = held_out.factors("tpot", confidence, shifts)
    first = held_out.factors("ttft", confidence, shifts) if held_out.ttft else None
    served, offered = figures.served_per_s, figures.offered_per_s
    rates: Ends | None = None
    if served > 0:
        # slower passes serve fewer; faster ones no more than are asked for
        asked = instance.scenario.rate
        rates = (
            min(served, offered / high),
            max(served, offered / low if asked is None else min(asked, offered / low)),
        )

    def tokens(per: float) -> Ends | None:
        return None if rates is None else _around(per * served, per * rates[0], per * rates[1])

    def money(usd: float | None) -> Ends | None:
        if rates is None or usd is None:
            return None
        fixed = usd * figures.fixed_usd_share
        dear, cheap = (fixed + (usd - fixed) * served / rate for rate in rates)
        return _around(usd, cheap, dear)

    return Intervals(
        confidence=confidence,
        tpot_s=(low * figures.tpot_s, high * figures.tpot_s),
        ttft_s=None if first is None else (first[0] * figures.ttft_s, first[1] * figures.ttft_s),
        ttft_mean_s=None
        if first is None
        else (first[0] * figures.ttft_mean_s, first[1] * figures.ttft_mean_s),
        output_tokens_per_s=tokens(figures.output_tokens),
        output_tokens_per_s_per_gpu=tokens(figures.output_tokens / max(figures.chips, 1)),
        usd_per_m_output_tokens=money(figures.usd_per_m_output_tokens),
        usd_per_m_tokens=money(figures.usd_per_m_tokens),
    )


def _around(value: float, low: float, high: float) -> Ends:
    """The ends, not on the wrong side of the value by a rounding."""
    return min(value, low), max(value, high)


def words_on_intervals(profile: Profile, unfitted: Collection[str] = ()) -> str:
    """What a profile's intervals rest on, for the provenance; ``unfitted``: chips that no fit saw."""
    held_out = profile.held_out
    if held_out is None:
        return f"none: profile {profile.name} was not compared with measurements"
    wider = (
        f"; wider by what {number} chips were off that no fit saw"
        if (number := len(profile.shifts(unfitted)))
        else ""
    )
    return (
        f"measured: {held_out.predictions:,} predictions with the model, the system or the engine left "
        f"out; TTFT {held_out.ttft_predictions:,} of lightly loaded workers, without the queue of a burst{wider}"
    )


@dataclass(frozen=True)
class Comparison:
    """A costlier layout beside a cheaper one.

    ``excess``: relative difference of cost; ``noise``: what the predicted ratio may be off by at
    ``confidence``; ``turned``: share of measured pairs of layouts that were off by more than the
    difference in the costlier one's favour. ``None`` where the profile knows no noise.
    """

    excess: float
    confidence: float | None = None
    noise: float | None = None
    turned: float | None = None

    @property
    def within_noise(self) -> bool | None:
        """Whether measurement could as well find the costlier layout cheaper; ``None``: not known."""
        return None if self.noise is None else self.excess <= self.noise


def compare_costs(
    profile: Profile, cheaper: float, dearer: float, confidence: float = CONFIDENCE
) -> Comparison:
    """Compare the costs of two layouts of one question."""
    excess = dearer / cheaper - 1.0
    held_out = profile.held_out
    if held_out is None or not held_out.layout_ratio:
        return Comparison(excess)
    confidence = min(confidence, held_out.most_confidence)
    return Comparison(
        excess, confidence, held_out.ratio_noise(confidence), held_out.turned(max(0.0, excess))
    )
