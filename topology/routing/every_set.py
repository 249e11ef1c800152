"""Every set of a few chips of a grid, at once: its exchange, its farthest pair, its narrowest ports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from topology.rate import Leg
from topology.routing.blocks import ChipBlock, front
from topology.routing.hops import UNREACHED
from topology.routing.spread import Edge

Array = NDArray[np.float64]

#: chips up to which every set of them is looked at
MOST_CHIPS = 16
#: sets whose all-gather is priced in search of the quickest
_GATHERS = 24


class EverySet:
    """All sets of some chips, by bit mask (bit ``i``: the ``i``-th of ``positions``).

    ``exchange_s [sets]``: seconds of the busiest link per byte sourced, where a link that leaves the set
    counts ``turns`` times; ``hops [sets]``: between the two members farthest apart (``UNREACHED``: not joined);
    ``ports [sets]``: bytes/s into the narrowest member over links inside the set, 0 where these leave it apart;
    ``sizes [sets]``.
    """

    def __init__(
        self,
        positions: Sequence[int],
        hops: NDArray[np.int16],
        hop_s: float,
        turns: int,
        rates: Mapping[Edge, float],
        pair_loads: Mapping[tuple[int, int], Mapping[Edge, float]],
    ):
        """``hops [chips, chips]`` of the domain, ``hop_s`` seconds each; ``rates`` of its links;
        ``pair_loads``: load of each link when two chips send a byte to each other."""
        self.hop_s = hop_s
        self.positions = tuple(positions)
        count = len(self.positions)
        masks = np.arange(1 << count)
        self.members: Array = ((masks[:, None] >> np.arange(count)) & 1).astype(float)
        self.sizes = self.members.sum(axis=1).astype(np.int64)
        self.hops = self._farthest(hops[np.ix_(self.positions, self.positions)])
        place = {f"g{position}": index for index, position in enumerate(self.positions)}
        widths = np.zeros((count, count))
        for (source, target), rate in rates.items():
            if source in place and target in place:
                widths[place[source], place[target]] = rate
        into = np.where(self.members > 0, self.members @ widths, np.inf)
        self.ports: Array = np.where(self._joined(widths > 0), into.min(axis=1), 0.0)
        self.exchange_s = self._exchange(turns, rates, pair_loads, place)

    def blocks(
        self,
        free: Collection[int],
        count: int,
        most: int,
        gather: Callable[[tuple[int, ...]], Leg] | None,
    ) -> list[ChipBlock]:
        """The quickest sets of ``count`` free chips: quick in all respects first, then of each latency the one
        that exchanges and the one that gathers soonest, where none closer together is as quick.

        ``gather`` prices the all-gather of a set, which the narrowest ports bound; ``None``: that bound will do. With it
        sets that no other is quicker than have the seconds of theirs.
        """
        taken = sum(1 << bit for bit, chip in enumerate(self.positions) if chip not in free)
        within = (np.arange(len(self.sizes)) & taken) == 0
        own = np.flatnonzero((self.sizes == count) & (self.hops != UNREACHED) & within)
        if not len(own):
            return []
        exchange, far = self.exchange_s[own].round(24), self.hops[own]
        with np.errstate(divide="ignore"):
            through = np.minimum((count - 1) / count / self.ports[own], exchange)
        total = exchange / exchange.min() + through / through.min() + far / far.min()
        order = np.argsort(total.round(9), kind="stable")[:most].tolist()
        soonest, narrowest = np.inf, np.inf
        chosen = order[:1]
        for hops in np.unique(far):
            there = np.flatnonzero(far == hops)
            quick = there[exchange[there].argmin()]
            if exchange[quick] < soonest * (1 - 1e-9):
                soonest = exchange[quick]
                chosen.append(int(quick))
            queue = there[np.argsort(through[there], kind="stable")]
            queue = queue[through[queue] < narrowest * (1 - 1e-9)]
            if gather is None:
                found = [(float(through[queue[0]]), int(queue[0]))] if len(queue) else []
            else:
                chips = ((float(through[at]), int(at), self.chips(int(own[at]))) for at in queue)
                found = _soonest(chips, float(hops) * self.hop_s, gather)
            if found:
                narrowest = min(narrowest, found[0][0])
                chosen += [at for _, at in found]
        blocks = [
            ChipBlock(
                self.chips(int(own[index])),
                float(exchange[index]),
                float(through[index]),
                float(far[index]) * self.hop_s,
            )
            for index in dict.fromkeys(chosen + order)
        ][: max(most, len(chosen) if most > 1 else 1)]
        return blocks if gather is None else priced(blocks, gather)

    @staticmethod
    def _farthest(hops: NDArray[np.int16]) -> NDArray[np.int64]:
        """Of each set, by its highest chip and the rest: the larger of the rest's and its own reach."""
        count = len(hops)
        apart = np.where(hops == UNREACHED, np.iinfo(np.int16).max, hops).astype(np.int64)
        found = np.zeros(1 << count, dtype=np.int64)
        for chip in range(count):
            reach = np.zeros(1 << chip, dtype=np.int64)
            for other in range(chip):
                reach[1 << other : 2 << other] = np.maximum(reach[: 1 << other], apart[chip, other])
            found[1 << chip : 2 << chip] = np.maximum(found[: 1 << chip], reach)
        return np.where(found == np.iinfo(np.int16).max, UNREACHED, found)

    @staticmethod
    def _joined(beside: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of each set, whether links inside it join its members."""
        count = len(beside)
        masks = np.arange(1 << count)
        around = [sum(1 << other for other in np.flatnonzero(row)) for row in beside | beside.T]
        reached, before = masks & -masks, np.zeros_like(masks)
        while (reached != before).any():
            before = reached.copy()
            for chip, others in enumerate(around):
                reached |= np.where(reached >> chip & 1, others, 0) & masks
        return np.asarray(reached == masks)

    def _exchange(
        self,
        turns: int,
        rates: Mapping[Edge, float],
        pair_loads: Mapping[tuple[int, int], Mapping[Edge, float]],
        place: Mapping[str, int],
    ) -> Array:
        count = len(self.positions)
        by_link: dict[Edge, Array] = {}
        for (a, b), loads in pair_loads.items():
            for edge, load in loads.items():
                if edge not in by_link:
                    by_link[edge] = np.zeros((count, count))
                by_link[edge][place[f"g{a}"], place[f"g{b}"]] = load
        slowest = np.zeros(len(self.members))
        for (source, target), pairs in by_link.items():
            total = _of_all_pairs(pairs)
            inside = np.zeros(len(total))
            if source in place and target in place:
                inside = self.members[:, place[source]] * self.members[:, place[target]]
            np.maximum(
                slowest, total * (turns - (turns - 1) * inside) / rates[source, target], out=slowest
            )
        found: Array = slowest / np.maximum(self.sizes, 1)
        return found

    def chips(self, mask: int) -> tuple[int, ...]:
        """Positions of the members of a set."""
        return tuple(p for bit, p in enumerate(self.positions) if mask >> bit & 1)


def _of_all_pairs(pairs: Array) -> Array:
    """Sum of ``pairs [chips, chips]`` over the pairs of members of each set, ``[sets]``.

    A set is its highest chip and the rest: the sum over the rest, and what the chip has with each of these.
    """
    count = len(pairs)
    found = np.zeros(1 << count)
    for chip in range(count):
        own = np.full(1 << chip, pairs[chip, chip])
        for other in range(chip):
            both = pairs[chip, other] + pairs[other, chip]
            own[1 << other : 2 << other] = own[: 1 << other] + both
        found[1 << chip : 2 << chip] = found[: 1 << chip] + own
    return found


def priced(blocks: list[ChipBlock], gather: Callable[[tuple[int, ...]], Leg]) -> list[ChipBlock]:
    """The blocks, those at the front of them with what their all-gather takes instead of a bound on it.

    A bound may not put a set before one that gathers sooner.
    """
    known: set[tuple[int, ...]] = set()
    while True:
        bare = {one.chips for one in front(blocks)} - known
        if not bare:
            return blocks
        known |= bare
        blocks = [
            replace(one, gather_s_per_byte=gather(one.chips).s_per_byte)
            if one.chips in bare
            else one
            for one in blocks
        ]


def _soonest(
    sets: Iterable[tuple[float, int, tuple[int, ...]]],
    latency_s: float,
    gather: Callable[[tuple[int, ...]], Leg],
) -> list[tuple[float, int]]:
    """Of sets in the order of a bound on their all-gather, the one that gathers soonest, and the closest such.

    ``sets``: bound in seconds per byte, index, chips. Looks no further than where no set can be better.
    """
    best: list[tuple[float, float, int]] = []
    for tried, (bound, index, chips) in enumerate(sets):
        known = min(best, default=None)
        settled = known is not None and known[0] <= bound * (1 + 1e-9)
        if tried == _GATHERS or (
            settled and known is not None and known[1] <= latency_s * (1 + 1e-9)
        ):
            break
        leg = gather(chips)
        best.append((float(f"{leg.s_per_byte:.12g}"), leg.latency_s, index))
    return [(seconds, index) for seconds, _, index in sorted(best)[:1]]
