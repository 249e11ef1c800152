"""Dimension-order routes on a torus: one axis after the other, ties split both ways round.

A single message takes one order of the axes or several; an exchange takes all orders alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from math import factorial, prod

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from topology.routing.boxes import Axis, position_of, site_of

Floats = NDArray[np.float64]


def dimension_order(
    axes: Sequence[Axis], source: int, target: int, order: Sequence[int] | None = None
) -> Iterator[tuple[tuple[str, str], float]]:
    """Edges of the route and the fraction of the message on each.

    ``order`` lists the axes as they are travelled, ascending by default. On a ring the shorter
    way is taken; at exactly half the ring the message is split in two.
    """
    shape = [axis.side for axis in axes]
    here, goal = list(site_of(source, shape)), site_of(target, shape)
    for number in order if order is not None else range(len(axes)):
        axis = axes[number]
        ahead = (goal[number] - here[number]) % axis.side
        ways = _ways(axis, ahead, goal[number] - here[number])
        for step, hops, part in ways:
            site = list(here)
            for _ in range(hops):
                before = position_of(site, shape)
                site[number] = (site[number] + step) % axis.side
                yield (f"g{before}", f"g{position_of(site, shape)}"), part
        here[number] = goal[number]


def _ways(axis: Axis, ahead: int, straight: int) -> list[tuple[int, int, float]]:
    if straight == 0:
        return []
    if not axis.ring:
        return [(1 if straight > 0 else -1, abs(straight), 1.0)]
    back = axis.side - ahead
    if ahead == back:
        return [(1, ahead, 0.5), (-1, back, 0.5)]
    return [(1, ahead, 1.0)] if ahead < back else [(-1, back, 1.0)]


def exchange_flows(axes: Sequence[Axis], members: Sequence[int]) -> Floats:
    """Load of each link when every member sends *1/c* to every member, over all orders of the axes.

    ``[axes, 2, chips]``: by the axis of the link, its direction (ahead, back) and the chip that it leaves; an axis of two
    chips has all of it ahead. Each order carries the same part of a message, so that a group and the same group turned by
    a right angle load their links alike (O1TURN: Seo et al., "Near-optimal worst-case throughput
    routing for two-dimensional mesh networks", 2005). Where the axes *B* come before axis *a*, a
    message runs along the line given by its target's coordinates on *B* and its source's on the
    others, so that the pairs on a line are a product of two counts of members.
    """
    shape = [axis.side for axis in axes]
    here = np.zeros(shape)
    here.reshape(-1)[list(members)] = 1.0
    flows = np.zeros((len(axes), 2, here.size))
    places = np.arange(here.size).reshape(shape)
    for number, axis in enumerate(axes):
        others = [other for other in range(len(axes)) if other != number]
        positions, back, taken = _steps(axis)
        for before, part in _befores(others):
            after = [other for other in others if other not in before]
            turned = [*before, number, *after]
            front = prod(shape[other] for other in before)
            grid = here.transpose(turned).reshape(front, axis.side, -1)
            named = places.transpose(turned).reshape(front, axis.side, -1)
            sources, targets = grid.sum(axis=0), grid.sum(axis=2)  # [side, after], [before, side]
            # pairs on line (before, after) of each link: targets @ taken.T @ sources
            amounts = targets @ taken.transpose(0, 2, 1) @ sources * (part / len(members))
            leaving = named[:, positions].transpose(1, 0, 2)
            flows[number, back[:, None, None], leaving] += amounts
        if axis.side == 2:
            flows[number, 0] += flows[number, 1]
            flows[number, 1] = 0.0
    return flows


def exchange_loads(axes: Sequence[Axis], members: Sequence[int]) -> dict[tuple[str, str], float]:
    """:func:`exchange_flows` by the ends of the links that carry some."""
    flows = exchange_flows(axes, members)
    at = np.nonzero(flows)
    ends = zip(at[2].tolist(), _beside(axes)[at].tolist(), flows[at].tolist(), strict=True)
    return {(f"g{chip}", f"g{other}"): load for chip, other, load in ends}


def _beside(axes: Sequence[Axis]) -> NDArray[np.int64]:
    """``[axes, 2, chips]``: the chip next to each one, ahead and back on each axis, over its ring or its end."""
    shape = [axis.side for axis in axes]
    places = np.arange(prod(shape)).reshape(shape)
    near = [
        [np.roll(places, -step, axis=at).ravel() for step in (1, -1)] for at in range(len(axes))
    ]
    return np.array(near)


class LinkTimes:
    """Seconds of the links of a torus without failures, whose edges in ``graph`` have ``bytes_per_s``.

    A chip outside a group serves its ``ports`` in turn.
    """

    def __init__(self, axes: Sequence[Axis], graph: nx.DiGraph[str], ports: int):
        self.axes, self.ports, self.beside = axes, ports, _beside(axes)
        #: of each link, 1 where there is none: an end of a line
        self.bytes_per_s = np.ones(self.beside.shape)
        for at, other in np.ndenumerate(self.beside):
            if edge := graph.edges.get((f"g{at[2]}", f"g{other}")):
                self.bytes_per_s[at] = edge["bytes_per_s"]

    def slowest(self, members: Sequence[int]) -> tuple[float, str]:
        """Seconds per byte sourced per chip of the link that an exchange keeps busiest, and its name."""
        inside = np.zeros(self.beside.shape[2], dtype=bool)
        inside[list(members)] = True
        turns = np.where(inside & inside[self.beside], 1, self.ports)
        seconds = exchange_flows(self.axes, members) * turns / self.bytes_per_s
        at = np.unravel_index(int(seconds.argmax()), seconds.shape)
        return float(seconds[at]), f"g{at[2]}--g{self.beside[at]}"


def _befores(others: Sequence[int]) -> Iterator[tuple[tuple[int, ...], float]]:
    """Axes travelled before one of the axes, and the part of all orders in which just these are."""
    every = factorial(len(others) + 1)
    for count in range(len(others) + 1):
        part = factorial(count) * factorial(len(others) - count) / every
        for before in combinations(others, count):
            yield before, part


@lru_cache(maxsize=64)
def _steps(axis: Axis) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Links of an axis: the position each leaves, whether it leads back, the part of pair [source, target] on it."""
    found: dict[tuple[int, int], Floats] = {}
    for source in range(axis.side):
        for target in range(axis.side):
            straight = target - source
            for step, hops, part in _ways(axis, straight % axis.side, straight):
                for hop in range(hops):
                    link = ((source + step * hop) % axis.side, step)
                    if link not in found:
                        found[link] = np.zeros((axis.side, axis.side))
                    found[link][source, target] += part
    taken = np.array(list(found.values())).reshape(-1, axis.side, axis.side)
    links = np.array(list(found), dtype=np.int64).reshape(-1, 2)
    return links[:, 0], (links[:, 1] < 0).astype(np.int64), taken


def rotations(axes: Sequence[Axis], source: int, target: int) -> list[list[int]]:
    """One order of the axes starting on each axis on which two chips differ.

    The routes of these orders share no link, so that a message may be striped over them.
    """
    shape = [axis.side for axis in axes]
    a, b = site_of(source, shape), site_of(target, shape)
    differing = [number for number in range(len(axes)) if a[number] != b[number]]
    return [differing[start:] + differing[:start] for start in range(len(differing))]
