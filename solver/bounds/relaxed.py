"""What no layout of an instance exceeds, without one: the relaxed bound, lowered by placing the shapes that attain it.

A search on thousands of chips spends most of its time on fleets and layouts of all of them. Where a bound is all that is asked
for, parts of replicas will do: shapes are bounded, those that the bound rests on are placed, which lowers their bounds to what
placement allows, and so on until shapes already placed come as close as asked for, or rounds raise it no more.
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.question.instance import Instance
from solver.bounds.apart import cheapest_by_role, cost_per_rate_bound
from solver.clock import Clock
from solver.rounds import Search
from solver.search import kept_groundwork
from topology.errors import NoFeasibleLayout

#: rounds of placing at most; the bound ends where so many of them together raised it by less than a part of the gap
_ROUNDS, _WINDOW, _PART = 40, 4, 0.25


@dataclass(frozen=True)
class Relaxed:
    """No layout of the instance costs less than ``bound_usd_per_m_output_tokens``, chips in replicas paid.

    ``gap``: how much more placing could raise it at most, as a part of it; infinite where nothing placed serves.
    """

    bound_usd_per_m_output_tokens: float
    gap: float
    covers: tuple[str, ...]


def relaxed_bound(instance: Instance, *, clock: Clock, gap: float, seed: int) -> Relaxed:
    """The bound of a question without a rate that pays for chips in use, to about ``gap``; as far as the clock allows.

    Any fleet of whole replicas is one of the relaxation, in which links bind as :func:`cost_per_rate_bound` says. What placed
    shapes achieve in the same relaxation is what the bound cannot pass. Raises ``NoFeasibleLayout`` where no shape fits.
    """
    known = Search(instance, clock, gap, seed, None, ground=kept_groundwork(instance))
    classes, links = known.classes, known.question.links
    placed: set[int] = set()
    bounds: list[float] = []
    for _ in range(_ROUNDS):
        items = known.items.best()
        bound = cost_per_rate_bound(items, classes, links)
        if bound <= 0.0:
            raise NoFeasibleLayout(known.why())
        reached = cost_per_rate_bound(known.placed.achieved(), classes, links) if placed else 0.0
        wanted = {items[place].shape for place in cheapest_by_role(items, classes)} - placed
        bounds.append(bound)
        slow = len(bounds) > _WINDOW and bound < bounds[-1 - _WINDOW] * (1.0 + gap * _PART)
        if 0.0 < reached <= bound * (1.0 + gap) or not wanted or slow or clock.over:
            break
        known.place(sorted(wanted))
        placed = set(known.placed.realised)
    return Relaxed(
        bound * known.to_usd, reached / bound - 1.0 if reached > 0.0 else float("inf"), known.covered()
    )  # fmt: skip
