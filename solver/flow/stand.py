"""Nodes for the groups of a row: at a border between rooms those whose links are fastest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import comb, prod

from solver.flow.groups import Group
from solver.flow.network import Network, Ranges
from solver.flow.rows import Row
from solver.flow.sections import Section

#: choices of nodes at a border that are all compared; of more, each side is chosen by itself
_MOST_CHOICES = 4000


class _Standing:
    """Who is where: ``slots`` are the places of a row, in order, each with group, first and last layer."""

    def __init__(self, row: Row, groups: Sequence[Group]):
        self.groups = groups
        self.slots: list[tuple[int, int, int]] = []
        self.lanes: list[list[list[int]]] = []
        first = 0
        for section in row.sections:
            self.lanes.append([])
            for lane in section.lanes:
                at, own = first, []
                for group, layers in lane.steps:
                    own.append(len(self.slots))
                    self.slots.append((group, at, at + layers - 1))
                    at += layers
                self.lanes[-1].append(own)
            first += section.length
        self.node: dict[int, int] = {}

    def free(self, group: int) -> list[int]:
        """Nodes of a group that stand nowhere yet."""
        taken = set(self.node.values())
        return [node for node in self.groups[group].nodes if node not in taken]

    def fill(self) -> None:
        """Put any free node of the right group on each place that is still empty."""
        for slot, (group, _, _) in enumerate(self.slots):
            if slot not in self.node:
                self.node[slot] = self.free(group)[0]


def stand(
    row: Row, groups: Sequence[Group], network: Network
) -> tuple[Ranges, list[tuple[int, float]]]:
    """Ranges of all nodes for a row, and what each border of it carries.

    Borders are settled one after the other, in order.
    """
    standing = _Standing(row, groups)
    carried = []
    for border in row.borders:
        tails = [lane[-1] for lane in standing.lanes[border - 1]]
        heads = [lane[0] for lane in standing.lanes[border]]
        before, after = (tails, row.sections[border - 1]), (heads, row.sections[border])
        carried.append((border, _settle(standing, network, before, after)))
    standing.fill()
    found: list[tuple[int, int] | None] = [None] * network.number
    for slot, node in standing.node.items():
        _, first, last = standing.slots[slot]
        found[node] = (first, last)
    return found, carried


def _settle(
    standing: _Standing,
    network: Network,
    before: tuple[list[int], Section],
    after: tuple[list[int], Section],
) -> float:
    """Choose the nodes on both sides of a border whose links carry most; what they carry."""
    tails, heads = before[0], after[0]
    rates = [rate for _, rate in before[1].ends], [rate for _, rate in after[1].starts]
    best, chosen = -1.0, dict[int, int]()
    for choice in _choices(standing, [*tails, *heads]):
        carried = network.crossing(
            [(choice[slot], rate) for slot, rate in zip(tails, rates[0], strict=True)],
            [(choice[slot], rate) for slot, rate in zip(heads, rates[1], strict=True)],
        )
        if carried > best:
            best, chosen = carried, choice
    standing.node |= chosen
    return best


def _choices(standing: _Standing, slots: list[int]) -> Iterator[dict[int, int]]:
    """Nodes for places; places of one group with one rate are alike, so that only sets differ. Bounded."""
    settled = {slot: standing.node[slot] for slot in slots if slot in standing.node}
    alike: dict[tuple[int, int, int], list[int]] = {}
    for slot in slots:
        if slot not in settled:
            alike.setdefault(standing.slots[slot], []).append(slot)
    free = {group: standing.free(group) for group, _, _ in alike}
    number = prod(comb(len(free[key[0]]), len(places)) for key, places in alike.items())
    if (
        number > _MOST_CHOICES
    ):  # the first nodes only: fewer of each group until it is little enough
        most = max(len(nodes) for nodes in free.values())
        while number > _MOST_CHOICES and most > 1:
            most -= 1
            need = {g: sum(len(p) for k, p in alike.items() if k[0] == g) for g in free}
            free = {group: nodes[: max(most, need[group])] for group, nodes in free.items()}
            number = prod(comb(len(free[key[0]]), len(places)) for key, places in alike.items())
            if all(len(nodes) <= need[group] for group, nodes in free.items()):
                break
    sets = [combinations(free[key[0]], len(places)) for key, places in alike.items()]
    for drawn in product(*sets):
        nodes = [node for some in drawn for node in some]
        if len(set(nodes)) == len(nodes):
            places = [slot for some in alike.values() for slot in some]
            yield settled | dict(zip(places, nodes, strict=True))
