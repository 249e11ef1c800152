"""What a fleet is, what is asked of it, and what a search for one answers. No model in here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.question.instance import Instance
from costmodel.replica.hand_over import Rates, carried, room_beside
from costmodel.tolerance import exceeds
from solver.fleet.items import Item
from solver.shapes.pools import Pool, PoolClass, whole_usd_per_hour
from solver.shapes.shapes import ROLES
from topology.scaleout.uplinks import Uplinks

_PREFILL, _DECODE, _MIXED = (ROLES.index(role) for role in ("prefill", "decode", "mixed"))


@dataclass(frozen=True)
class Links:
    """What domains can send each other, and the bytes of KV that one request hands over."""

    uplinks: Uplinks
    request_bytes: float

    def beside(self, domains: NDArray[np.float64], units: NDArray[np.float64]) -> Uplinks:
        """Requests per second handed over beside other traffic of domains and units, bytes/s."""
        return room_beside(self.uplinks, domains, units, self.request_bytes)

    def alone(self, unit: int) -> bool:
        """Whether a unit holds one domain."""
        return int(np.count_nonzero(self.uplinks.unit_of == unit)) == 1

    def room(self, domain: int) -> float:
        """Requests per second that a domain alone could hand over, or take, at most."""
        most = self.uplinks.narrowest(domain)
        return most / self.request_bytes if self.request_bytes else float("inf")


@dataclass(frozen=True)
class Fleet:
    """Replicas of items on pools. ``stands[j]``: item and its pools for replica ``j``.

    ``requests_per_s`` and ``usd_per_hour`` by the items' own rates (not by the evaluator), as the links
    carry them (0 where the passes alone send more).
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
    """What a fleet is asked for: ``rate`` (requests/s) at least cost, or ``whole`` or ``used`` pay.

    ``links``: between the domains (``None``: they carry anything).
    """

    whole: bool
    whole_usd_per_hour: float
    rate: float | None
    links: Links | None = None

    @classmethod
    def of(cls, instance: Instance, classes: Sequence[PoolClass]) -> Question:
        """That of an instance, whose chips are in such classes."""
        return cls(
            instance.scenario.pay == "whole",
            whole_usd_per_hour(instance.cluster, classes),
            instance.scenario.rate,
            links_between(instance),
        )

    def cost_per_request(self, requests_per_s: float, usd_per_hour: float) -> float:
        """Dollars per (request per second) and hour: what is minimised."""
        if requests_per_s <= 0:
            return float("inf")
        if self.rate is not None:
            served = requests_per_s >= self.rate * (1 - 1e-9)
            return usd_per_hour / self.rate if served else float("inf")
        paid = self.whole_usd_per_hour if self.whole else usd_per_hour
        return paid / requests_per_s

    def cost_of(self, fleet: Fleet) -> float:
        """What a fleet costs per request."""
        return self.cost_per_request(fleet.requests_per_s, fleet.usd_per_hour)


@dataclass(frozen=True)
class FleetAnswer:
    """Best fleet found and a proven bound on the cost per request (``inf``: none can exist)."""

    fleet: Fleet | None
    bound: float


def fleet_of(
    stands: Sequence[tuple[Item, tuple[Pool, ...]]],
    classes: Sequence[PoolClass],
    links: Links | None = None,
) -> Fleet:
    """A fleet with its totals."""
    used: Counter[tuple[int, int]] = Counter()
    rates = [0.0, 0.0, 0.0]
    for item, pools in stands:
        rates[item.role] += item.requests_per_s
        for pool, (index, chips) in zip(pools, item.parts, strict=True):
            used[index, pool.domain] += chips
    usd = sum(classes[index].usd_per_hour(chips) for (index, _), chips in used.items())
    pooled = min(rates[_PREFILL], rates[_DECODE])
    if links is not None:
        handed = _handed_over(stands, links)
        if handed is None:
            return Fleet(tuple(stands), 0.0, usd)
        pooled = min(pooled, handed)
    return Fleet(tuple(stands), pooled + rates[_MIXED], usd)


def of_even_load(
    fleet: Fleet, served: Mapping[int, float], classes: Sequence[PoolClass], links: Links | None
) -> Fleet:
    """The same replicas with what each shape would serve, were the load of its experts even; no less than now.

    With even load every chip of a stage has the same share of the routed tokens, and batches are the largest
    that each shape then allows. As many experts are touched as before: a question with uniform load is
    another one, and may be dearer or cheaper.
    """
    stands = [
        (replace(item, requests_per_s=max(served[item.shape], item.requests_per_s)), pools)
        for item, pools in fleet.stands
    ]
    return fleet_of(stands, classes, links)


def _handed_over(stands: Sequence[tuple[Item, tuple[Pool, ...]]], links: Links) -> float | None:
    """Requests per second that the links carry from prefill to decode (``None``: not even the passes)."""
    room = links.uplinks
    rates = Rates(*(np.zeros(len(room.domain)) for _ in range(5)))
    domains, units = np.zeros(len(room.domain)), np.zeros(len(room.unit))
    for item, pools in stands:
        homes = [pool.domain for pool in pools]
        for sent, far, home in zip(item.sent, item.sent_far, homes, strict=False):
            domains[home] += sent
            units[room.unit_of[home]] += far
        if item.role == _MIXED:
            continue
        supplies = item.role == _PREFILL
        held = sum(chips for _, chips in item.holding)
        for home, (_, chips) in zip(homes, item.holding, strict=False):
            share = item.requests_per_s * chips / held
            if len(item.holding) > 1:
                if not supplies or item.leaves:
                    (rates.wide_supply if supplies else rates.wide_demand)[home] += share
                continue
            (rates.supply if supplies else rates.demand)[home] += share
            if supplies and item.leaves:
                rates.leaving[home] += share
    over = any(exceeds(float(a), float(b)) for a, b in zip(domains, room.domain, strict=True))
    if over or any(exceeds(float(a), float(b)) for a, b in zip(units, room.unit, strict=True)):
        return None
    return carried(rates, links.beside(domains, units)).requests_per_s


def links_between(instance: Instance) -> Links | None:
    """The links between domains (``None``: there is one domain)."""
    if sum(bool(domain.usable) for domain in instance.cluster.domains) < 2:
        return None
    return Links(instance.cluster.uplinks, instance.request_kv_bytes)


@dataclass(frozen=True)
class Stock:
    """What a fleet is chosen from, and how the choice is modelled.

    ``relaxed`` and ``met`` as :func:`solver.bounds.apart.rate_bound` finds them. ``linked``: flows over links are
    modelled; ``patterned``: all pools are filled by patterns; ``aggregated``: pools of a class are not told apart
    where they are many; ``counted``: none are, so that replicas are counted alone and the model gives a bound, no fleet.
    """

    items: Sequence[Item]
    classes: Sequence[PoolClass]
    question: Question
    relaxed: float
    met: list[dict[int, list[int]]]
    linked: bool
    patterned: bool = False
    aggregated: bool = False
    counted: bool = False
