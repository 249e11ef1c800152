"""The bound of a question of which searches said what units carry at most: over any layouts, in the space that is asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from costmodel.plan.hours import Hours
from costmodel.plan.question import PlanQuestion, PlanUnits
from solver.clock import Clock
from solver.plan.bounds.any_layouts import any_layouts, any_parts, bound_usd
from solver.plan.offers import Offers
from topology import load_cluster

_ANY = "any layout on the units of a kind; loading and finishing take an hour each, or one together, as short as they may be"
_APART = "not covered: replicas of one model that hand KV from one kind of unit to another"


@dataclass(frozen=True)
class Space:
    """Plans that a bound holds for: ``words`` of their units in a sentence, and what it ``covers`` in full."""

    words: str
    covers: tuple[str, ...]


#: a unit has one model in an hour; several models may have chips of one unit
WHOLE = Space(
    "plan of whole units",
    (
        "whole units: a unit runs one model in an hour, alone or together with other units of its kind",
        _ANY,
        f"{_APART}; two models on one unit",
    ),
)
PARTED = Space(
    "plan of whole units, shared by models or not,",
    (
        "whole units are paid: models share them chip by chip in any way, alone or together with other units of their kind",
        _ANY,
        _APART,
    ),
)


def bound_of(
    asked: PlanQuestion,
    hours: Hours,
    offers: Offers,
    off: Sequence[int],
    space: Space,
    *,
    large: bool,
    clock: Clock,
    seed: int,
) -> float:
    """Money of any plan of a space, at least; ``off``: by kind, chips of a unit that are off; ``large``: equal places are one pool.

    Raises ``NoFeasibleLayout`` where even what units carry at most is too little.
    """
    most = [
        [offers[m, k].most_requests_per_s for k in range(len(hours.kinds))]
        for m in range(len(hours.models))
    ]
    few, left = (
        {key: table(own) for key, own in offers.items()}
        for table in (attrgetter("most_of_few"), attrgetter("left_of_few"))
    )
    if space is PARTED:
        shares = [chip_shares(units, own) for units, own in zip(asked.units, off, strict=True)]
        # so many chips of unlike ones may be worth more than those of whole units
        alike = [
            len(_kinds_of_chips(units, own)) < 2
            for units, own in zip(asked.units, off, strict=True)
        ]
        few = {(m, k): own if alike[k] else () for (m, k), own in few.items()}
        parted = any_parts(hours, most, shares, few=few)
        return bound_usd(parted, clock=clock, seed=seed, parts=[len(one) for one in shares])
    # loading weights and finishing a request take some time in any layout
    if large:
        # only large questions pay for what plans by parts
        from solver.plan.by_parts.region import region_bound_usd

        return region_bound_usd(any_layouts(hours, most, loads=True, drains=True), clock=clock)
    loosest = any_layouts(hours, most, loads=True, drains=True, few=few, left=left)
    return bound_usd(loosest, clock=clock, seed=seed)


def chip_shares(units: PlanUnits, off: int) -> tuple[float, ...]:
    """Of each chip of a unit that is on, what it costs as a part of the unit; each all of it where a unit costs nothing."""
    chips = load_cluster(units.cluster).chips
    prices = [placed.chip.usd_per_hour for placed in chips[: len(chips) - off]]
    whole = sum(prices)
    return tuple(price / whole if whole > 0 else 1.0 for price in prices)


def _kinds_of_chips(units: PlanUnits, off: int) -> set[str]:
    """Names of the chips of a unit that are on."""
    chips = load_cluster(units.cluster).chips
    return {placed.chip.name for placed in chips[: len(chips) - off]}
