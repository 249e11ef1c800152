"""What a fleet is, what is asked of it, and what a search for one answers. No model in here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from solver.fleet.items import Item
from solver.shapes.pools import Pool, PoolClass
from solver.shapes.shapes import ROLES

_PREFILL, _DECODE, _MIXED = (ROLES.index(role) for role in ("prefill", "decode", "mixed"))


@dataclass(frozen=True)
class Fleet:
    """Replicas of items on pools. ``stands[j]``: item and its pools for replica ``j``.

    ``requests_per_s`` and ``usd_per_hour`` by the items' own rates (not by the evaluator).
    """

    stands: tuple[tuple[Item, tuple[Pool, ...]], ...]
    requests_per_s: float
    usd_per_hour: float

    @property
    def shapes(self) -> set[int]:
        """Rows of the shape table that are used."""
        return {item.shape for item, _ in self.stands}


@dataclass(frozen=True)
class Question:
    """What a fleet is asked for: ``rate`` (requests/s) at least cost, or ``whole`` or ``used`` pay."""

    whole: bool
    whole_usd_per_hour: float
    rate: float | None

    def cost_per_request(self, requests_per_s: float, usd_per_hour: float) -> float:
        """Dollars per (request per second) and hour: what is minimised."""
        if requests_per_s <= 0:
            return float("inf")
        if self.rate is not None:
            served = requests_per_s >= self.rate * (1 - 1e-9)
            return usd_per_hour / self.rate if served else float("inf")
        paid = self.whole_usd_per_hour if self.whole else usd_per_hour
        return paid / requests_per_s


@dataclass(frozen=True)
class FleetAnswer:
    """Best fleet found and a proven bound on the cost per request (``inf``: none can exist)."""

    fleet: Fleet | None
    bound: float


def fleet_of(
    stands: Sequence[tuple[Item, tuple[Pool, ...]]], classes: Sequence[PoolClass]
) -> Fleet:
    """A fleet with its totals."""
    rates = [0.0, 0.0, 0.0]
    for item, _ in stands:
        rates[item.role] += item.requests_per_s
    prices = {c.index: c.chip.usd_per_hour for c in classes}
    usd = sum(prices[item.pool_class] * item.chips for item, _ in stands)
    return Fleet(tuple(stands), min(rates[_PREFILL], rates[_DECODE]) + rates[_MIXED], usd)
