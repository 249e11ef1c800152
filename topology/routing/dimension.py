"""Dimension-order routes on a torus: one axis after the other, ties split both ways round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from topology.routing.boxes import Axis, position_of, site_of


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


def rotations(axes: Sequence[Axis], source: int, target: int) -> list[list[int]]:
    """One order of the axes starting on each axis on which two chips differ.

    The routes of these orders share no link, so that a message may be striped over them.
    """
    shape = [axis.side for axis in axes]
    a, b = site_of(source, shape), site_of(target, shape)
    differing = [number for number in range(len(axes)) if a[number] != b[number]]
    return [differing[start:] + differing[:start] for start in range(len(differing))]
