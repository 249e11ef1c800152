"""Sections: consecutive layers held by a few nodes of one room, side by side, that together pass a flow.

The nodes of a section stand in lanes. A lane is a chain of nodes that hold the section's layers one part after
the other and passes what its slowest node passes; the lanes of a section share the flow. A placement is a row of
sections. Sections that need more than the slack of the whole question cannot be part of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from solver.flow.groups import Group

#: nodes of a lane, nodes of a section, and tries of lanes for one length and of nodes for all lanes, at most
MOST_IN_LANE, MOST_IN_SECTION, MOST_TRIES, MOST_NODES = 3, 5, 40_000, 500_000
#: groups of a room up to which lanes have several nodes
_FEW = 16
#: lanes that pass a smaller share of the flow are left out
_LEAST_SHARE = 0.03


@dataclass(frozen=True)
class Lane:
    """Nodes one after the other, as ``(group, layers)``, and tokens/s of the slowest."""

    steps: tuple[tuple[int, int], ...]
    tokens_per_s: float


@dataclass(frozen=True)
class Section:
    """Lanes of one length in one room."""

    room: int
    length: int
    lanes: tuple[Lane, ...]
    usage: tuple[tuple[int, int], ...] = field(compare=False)

    @property
    def starts(self) -> tuple[tuple[int, float], ...]:
        """Group and tokens/s of the first node of each lane; the lane's, for it passes no more."""
        return tuple((lane.steps[0][0], lane.tokens_per_s) for lane in self.lanes)

    @property
    def ends(self) -> tuple[tuple[int, float], ...]:
        """The same of the last node of each lane."""
        return tuple((lane.steps[-1][0], lane.tokens_per_s) for lane in self.lanes)


def sections(
    groups: Sequence[Group], prices: Sequence[float], slack: float, flow: float
) -> list[Section]:
    """Sections that pass ``flow``, of every room.

    ``prices`` by group are such that a layer costs about 1 at least; a section of *m* layers may cost
    ``m + slack``. Of sections of the same length, nodes and ends one is kept.
    """
    found = []
    for room in sorted({group.room for group in groups}):
        own = [index for index, group in enumerate(groups) if group.room == room]
        for length, lanes in _lanes(groups, own, flow).items():
            found += _sections(groups, prices, (room, length, length + slack), lanes, flow)
    return found


_Used = tuple[int, ...]
_Ends = tuple[tuple[int, int], ...]


def _lanes(groups: Sequence[Group], own: list[int], flow: float) -> dict[int, dict[_Used, Lane]]:
    """The fastest lane for each length and set of nodes. Nodes count by group, in the order of ``groups``."""
    none = (0,) * len(groups)
    longest = max(len(groups[index].kind.rates) for index in own)
    found: dict[int, dict[_Used, Lane]] = {}
    last: dict[int, dict[_Used, Lane]] = {0: {none: Lane((), flow)}}
    tries = 0
    for _ in range(MOST_IN_LANE if len(own) <= _FEW else 1):
        longer: dict[int, dict[_Used, Lane]] = {}
        for length, lanes in last.items():
            for used, lane in lanes.items():
                for index in own:
                    if used[index] >= len(groups[index].nodes) or tries > MOST_NODES:
                        continue
                    if lane.steps and index < lane.steps[-1][0]:
                        continue
                    more = (*used[:index], used[index] + 1, *used[index + 1 :])
                    for k, rate in enumerate(groups[index].kind.rates[: longest - length], 1):
                        rate, tries = min(rate, lane.tokens_per_s), tries + 1
                        if tries > MOST_NODES or rate < flow * _LEAST_SHARE:
                            continue
                        known = longer.setdefault(length + k, {}).get(more)
                        if known is None or known.tokens_per_s < rate:
                            longer[length + k][more] = Lane((*lane.steps, (index, k)), rate)
        for length, lanes in longer.items():
            of_length = found.setdefault(length, {})
            for used, lane in lanes.items():
                if used not in of_length or of_length[used].tokens_per_s < lane.tokens_per_s:
                    of_length[used] = lane
        last = longer
    return found


def _sections(
    groups: Sequence[Group],
    prices: Sequence[float],
    room: tuple[int, int, float],
    lanes: dict[_Used, Lane],
    flow: float,
) -> list[Section]:
    """Sets of lanes that pass the flow; ``room``: its number, the length and the most that a set may cost."""
    number, length, budget = room
    borders = any(group.room != number for group in groups)
    most = [len(group.nodes) for group in groups]
    priced = [(_dot(prices, used), used, lane) for used, lane in lanes.items()]
    choices = sorted(
        (one for one in priced if one[0] <= budget), key=lambda one: -one[2].tokens_per_s
    )
    found: dict[tuple[_Used, _Ends], tuple[Lane, ...]] = {}
    tries = 0

    def extend(start: int, rest: float, cost: float, used: _Used, chosen: tuple[Lane, ...]) -> None:
        nonlocal tries
        for index in range(start, len(choices)):
            tries += 1
            own_cost, own_used, lane = choices[index]
            if tries > MOST_TRIES or lane.tokens_per_s * (MOST_IN_SECTION - sum(used)) < rest:
                return
            if cost + own_cost > budget:
                continue
            together = tuple(a + b for a, b in zip(used, own_used, strict=True))
            if sum(together) > MOST_IN_SECTION or any(
                a > b for a, b in zip(together, most, strict=True)
            ):
                continue
            left = rest - lane.tokens_per_s
            if left <= 1e-9 * flow:
                whole = (*chosen, lane)
                found.setdefault((together, _ends(whole) if borders else ()), whole)
            else:
                extend(index, left, cost + own_cost, together, (*chosen, lane))

    extend(0, flow, 0.0, (0,) * len(groups), ())
    return [
        Section(number, length, chosen, tuple((g, n) for g, n in enumerate(used) if n))
        for (used, _), chosen in found.items()
    ]


def _ends(lanes: Sequence[Lane]) -> _Ends:
    """Groups of the first and the last node of each lane: what matters at a border between rooms."""
    return tuple(sorted((lane.steps[0][0], lane.steps[-1][0]) for lane in lanes))


def _dot(prices: Sequence[float], used: _Used) -> float:
    return sum(price * number for price, number in zip(prices, used, strict=True))
