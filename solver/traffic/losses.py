"""What is left of a layout after the loss of a node, a rack or some chips: replicas that touch it are gone.

Fleets stand apart before: replicas of one role in as many domains as there are, so that a domain takes few of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from solver.fleet.asked import Fleet
from solver.fleet.items import Item
from solver.shapes.pools import Pool, PoolClass


def units(instance: Instance, spare: str | int) -> list[Sequence[str]]:
    """Chips that go together, each a possible loss.

    ``rack``: a scale-up domain. ``node``: the chips of one host, where domains are larger. A number: so many
    neighbours of a domain.
    """
    found: list[Sequence[str]] = []
    for domain in instance.cluster.domains:
        chips = [placed.id for placed in domain.chips]
        size = len(chips)
        if spare == "node":
            size = min(size, domain.chips[0].chip.chips_per_host)
        elif isinstance(spare, int):
            size = min(size, spare)
        found += [chips[at : at + size] for at in range(0, len(chips), size)]
    return found


def losses(instance: Instance, layout: Layout, spare: str | int) -> Iterator[Layout]:
    """The layout after each loss that leaves another set of replicas, most capacity lost first."""
    seen = set()
    cut = []
    for chips in units(instance, spare):
        gone = set(chips)
        hit = tuple(
            index for index, one in enumerate(layout.replicas) if not gone.isdisjoint(one.chips)
        )
        kinds = tuple(
            sorted((layout.replicas[i].role, repr(layout.replicas[i].shape)) for i in hit)
        )
        if hit and kinds not in seen:
            seen.add(kinds)
            cut.append(hit)
    for hit in sorted(cut, key=lambda hit: -sum(len(layout.replicas[i].chips) for i in hit)):
        kept = tuple(one for index, one in enumerate(layout.replicas) if index not in hit)
        yield layout.model_copy(update={"replicas": _serving(kept)})


def _serving(replicas: Sequence[Replica]) -> tuple[Replica, ...]:
    """Those that can serve: prefill needs decode replicas, and the other way round."""
    roles = {one.role for one in replicas}
    if {"prefill", "decode"} <= roles:
        return tuple(replicas)
    return tuple(one for one in replicas if one.role == "mixed")


def spread_out(fleet: Fleet, classes: Sequence[PoolClass]) -> Fleet:
    """The same replicas, those in one domain moved to where fewest chips of their role are, then fewest chips."""
    free = {(one.index, pool.domain): one.size for one in classes for pool in one.pools}
    roles: Counter[tuple[int, int]] = Counter()
    found: list[tuple[Item, tuple[Pool, ...]]] = []
    narrow = [stand for stand in fleet.stands if len(stand[1]) == 1]
    for stand in fleet.stands:
        if len(stand[1]) > 1:
            found.append(stand)
            for (index, chips), pool in zip(stand[0].parts, stand[1], strict=True):
                free[index, pool.domain] -= chips
    for item, _ in sorted(narrow, key=lambda stand: -stand[0].chips):
        ((index, chips),) = item.parts
        room = [pool for pool in classes[index].pools if free[index, pool.domain] >= chips]
        if not room:
            return fleet
        best = min(
            room,
            key=lambda pool: (
                roles[item.role, pool.domain],
                -free[index, pool.domain],
                pool.domain,
            ),
        )
        free[index, best.domain] -= chips
        roles[item.role, best.domain] += chips
        found.append((item, (best,)))
    return replace(fleet, stands=tuple(found))


def widths(spare: str | int, size: int) -> list[int | None]:
    """Chips of a replica at most, in classes of ``size`` chips: where a loss takes whole replicas, narrow ones lose less.

    What is likely to be cheap comes first: what costs no less is not replayed.
    """
    narrow = (8, 4, 16, 2, 32) if spare else ()
    return [*(chips for chips in narrow if chips < size), None]
