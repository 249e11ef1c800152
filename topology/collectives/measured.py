"""What a collective costs by the fits that were measured on each type of chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from topology.collectives.compose import Cost, Part
from topology.links.fits import Fit, load_link_fits
from topology.rate import Rate


def measured_rate(cost: Cost, kind: str, parts: Sequence[Part]) -> Rate:
    """A collective's rate by the fits of its types of chip.

    Of several types the one that is slowest on a large message, with the largest latency of any.
    """
    types = {fabric.chips[position].name for _, fabric, group in parts for position in group}
    found = [cost.rate(*_fits(name, kind)) for name in sorted(types)]
    slow = max(found, key=lambda rate: rate.s_per_byte)
    return replace(slow, latency_s=max(rate.latency_s for rate in found))


def _fits(chip: str, kind: str) -> tuple[Fit | None, Fit | None]:
    found = load_link_fits(chip)
    if found is None:
        return None, None
    return found.collectives.get(kind), found.scale_out
