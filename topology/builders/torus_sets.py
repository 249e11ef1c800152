"""Sets of chips on a torus: those that are quick together, beside each other, or cut into groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations

import networkx as nx
import numpy as np

from topology.builders.torus_patterns import TorusPatterns
from topology.chip import Chip
from topology.routing.blocks import (
    KEYS,
    ChipBlock,
    around,
    boxes,
    by_speed,
    chain,
    cut,
    disjoint,
    front,
    grown,
    nearly_boxes,
    placed_boxes,
    runs,
)
from topology.routing.boxes import best_box
from topology.routing.every_set import MOST_CHIPS, EverySet, priced
from topology.routing.hops import UNREACHED

#: boxes looked at for one number of chips, where not every set is
_MOST_BOXES = 400
#: chips beyond which fewer boxes and sets are looked at: each takes longer, and more of them are alike
_LARGE, _LARGE_BOXES, _LARGE_SETS = 64, 12, 3
#: chips up to which sets are also grown where there are boxes, and the chips that they are grown from
_GROWN, _SEEDS = 64, 24
#: sets that are no boxes, of those grown, whose times are worked out
_PRICED = 8
#: sides of boxes that are looked at wherever they find room
_KINDS = 6
#: sets of a block that it may be cut into
_IN_A_BLOCK = 400


class TorusSets(TorusPatterns):
    """Which chips of a grid belong together."""

    def __init__(self, chips: Sequence[Chip], failed: frozenset[str] = frozenset()):
        super().__init__(chips, failed)
        self._tables: dict[tuple[int, ...], EverySet] = {}
        self._blocks: dict[tuple[tuple[int, ...], int, int, bool], list[ChipBlock]] = {}
        self._everywhere: dict[tuple[frozenset[int], int], list[ChipBlock]] = {}

    def pick(self, candidates: Sequence[int], count: int) -> tuple[int, ...]:
        """The box of ``count`` free chips with the shortest sides, or the quickest set found."""
        if self._whole_links:
            box = best_box(self.axes, frozenset(candidates), count)
            if box is not None:
                return box
        return self.blocks(candidates, count, 1)[0].chips

    def blocks(
        self, candidates: Sequence[int], count: int, most: int, *, gathers: bool = False
    ) -> list[ChipBlock]:
        """Of few candidates the quickest of all sets; else boxes and sets grown around a chip.

        First comes one that is quick in all respects, then the quickest in each.
        """
        free = tuple(sorted(candidates))
        key = (free, count, most, gathers)
        if key not in self._blocks:
            few = self._few(free)
            if count == 1:
                found = [ChipBlock((chip,)) for chip in free[:most]]
            elif few is not None:
                price = self.gather if gathers else None
                found = self._table(few).blocks(frozenset(free), count, most, price)
            else:
                found = self._compact(free, count, most, gathers=gathers)
            self._blocks[key] = found
        return self._blocks[key]

    def every_set_of(self, candidates: Sequence[int]) -> bool:
        """Where links join few chips."""
        return self._few(candidates) is not None

    def _few(self, candidates: Sequence[int]) -> tuple[int, ...] | None:
        """The joined chips that candidates are among, if so few that every set of them is looked at."""
        for part in self.parts:
            if len(part) <= MOST_CHIPS and part.issuperset(candidates):
                return tuple(sorted(part))
        return None

    def cuts(self, block: tuple[int, ...], size: int) -> list[list[tuple[int, ...]]]:
        """The cuts whose slowest group exchanges soonest and gathers soonest, and the one whose groups are closest together.

        Each group follows one near it, for stages hand on to the next.
        """
        found = [
            [(chip,) for chip in block] if size == 1 else cut(block, size, self.everywhere, key)
            for key in KEYS
        ]
        return list(map(list, dict.fromkeys(tuple(self.in_a_row(one)) for one in found)))

    def everywhere(self, candidates: Sequence[int], count: int) -> list[ChipBlock]:
        """Of many candidates boxes, or what is nearly one, wherever they find room: those sides that are quick.

        A box takes as long wherever it is, so that one of each is priced.
        """
        free = frozenset(candidates)
        if len(free) <= _LARGE or count == 1:
            return self.blocks(candidates, count, _IN_A_BLOCK)
        key = (free, count)
        if key not in self._everywhere:
            kinds: dict[ChipBlock, list[tuple[int, ...]]] = {}
            for sides in nearly_boxes(self.axes, count):
                places = list(placed_boxes(self.axes, free, sides, count))
                if places:
                    kinds[self._block(places[0])] = places
            quick = by_speed(list(kinds)) if kinds else []
            best = front(quick)
            order = [*best, *(one for one in quick if one not in best)][:_KINDS]
            self._everywhere[key] = [
                replace(kind, chips=chips) for kind in order for chips in kinds[kind]
            ] or self.blocks(candidates, count, _IN_A_BLOCK)
        return self._everywhere[key]

    def side_by_side(
        self, candidates: Sequence[int], size: int, number: int
    ) -> list[list[tuple[int, ...]]]:
        """``number`` groups of ``size`` candidates that share none and are equally quick, one way for each kind of group."""
        kinds: dict[tuple[float, ...], list[tuple[int, ...]]] = {}
        for one in self.everywhere(candidates, size):
            kinds.setdefault(one.speed, []).append(one.chips)
        ways = [way for places in kinds.values() if len(way := disjoint(places, number)) == number]
        return list(map(self.in_a_row, ways))

    def in_a_row(self, groups: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Groups in an order in which each is followed by the nearest that is left."""
        return chain(groups, self.hops) if groups else []

    def _table(self, free: tuple[int, ...]) -> EverySet:
        """Every set of some joined chips."""
        if free not in self._tables:
            pairs = {
                (a, b): {edge: 2 * load for edge, load in self.loads("exchange", (a, b)).items()}
                for a, b in combinations(free, 2)
                if self.hops[a, b] != UNREACHED
            }
            rates = nx.get_edge_attributes(self.graph, "bytes_per_s")
            self._tables[free] = EverySet(free, self.hops, self.hop_s, self.ports, rates, pairs)
        return self._tables[free]

    def _compact(
        self, free: tuple[int, ...], count: int, most: int, *, gathers: bool
    ) -> list[ChipBlock]:
        """Boxes, and sets grown around chips spread over the candidates, quickest first."""
        large = len(free) > _LARGE
        most = min(most, _LARGE_SETS) if large else most
        limit = _LARGE_BOXES if large else _MOST_BOXES
        chosen = dict.fromkeys(boxes(self.axes, frozenset(free), count, limit))
        if count <= _GROWN or not chosen:
            step = max(1, len(free) // max(2, min(most, _SEEDS)))
            for sets in (grown, around):
                chosen |= dict.fromkeys(sets(self.hops, free, count, free[::step]))
        odd = [chips for chips in chosen if self._box(chips) is None]
        odd.sort(key=self._spread_out)
        rows = dict.fromkeys(runs(self.axes, free, count))  # looked at however far apart they are
        dropped = set(odd[_PRICED:]) - rows.keys()
        chosen |= rows
        found = [self._block(chips) for chips in chosen if chips not in dropped]
        if not found:
            return [ChipBlock(free[:count])]
        if gathers:
            found = priced(found, self.gather)
        first = [min(found, key=key) for key in KEYS]
        return list(dict.fromkeys(first + by_speed(found)))[: max(most, 1)]

    def _spread_out(self, chips: tuple[int, ...]) -> tuple[int, int]:
        """Hops between the chips of a set that are farthest apart, and between all of them."""
        apart = self.hops[np.ix_(chips, chips)]
        return int(apart.max()), int(apart.sum())

    def _block(self, chips: tuple[int, ...]) -> ChipBlock:
        """A set with its times; the all-gather of one that is no box by its narrowest ports."""
        leg = self.exchange(chips)
        if self._box(chips) is not None:
            gather = self.gather(chips).s_per_byte
        else:
            inside = set(chips)
            ports = min(sum(rate for b, rate in self._ways_in[a] if b in inside) for a in chips)
            direct = (len(chips) - 1) / len(chips) / ports if ports > 0 else float("inf")
            gather = min(direct, leg.s_per_byte)
        return ChipBlock(chips, leg.s_per_byte, gather, leg.latency_s)

    @cached_property
    def _ways_in(self) -> list[list[tuple[int, float]]]:
        """Neighbours of each chip and the bytes/s from them."""
        edges = self.graph.edges
        return [
            [(b, edges[f"g{b}", f"g{a}"]["bytes_per_s"]) for b in near]
            for a, near in enumerate(self.neighbours)
        ]
