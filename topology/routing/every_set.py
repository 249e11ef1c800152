"""Every set of a few chips of a grid, at once: its exchange, its farthest pair, its narrowest ports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from topology.rate import Leg
from topology.routing.blocks import Block
from topology.routing.hops import UNREACHED
from topology.routing.spread import Edge

Array = NDArray[np.float64]

#: chips up to which every set of them is looked at
MOST_CHIPS = 16
#: sets whose all-gather is priced in search of the quickest
_GATHERS = 60


class EverySet:
    """All sets of some chips, by bit mask (bit ``i``: the ``i``-th of ``positions``).

    ``exchange_s [sets]``: seconds of the busiest link per byte sourced, where a link that leaves the set
    counts ``turns`` times; ``hops [sets]``: between the two members farthest apart (``UNREACHED``: not joined);
    ``ports [sets]``: bytes/s into the narrowest member over links inside the set; ``sizes [sets]``.
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
        self.ports: Array = into.min(axis=1)
        self.exchange_s = self._exchange(turns, rates, pair_loads, place)

    def blocks(
        self,
        free: Collection[int],
        count: int,
        most: int,
        gather: Callable[[tuple[int, ...]], Leg] | None,
    ) -> list[Block]:
        """The quickest sets of ``count`` free chips: of each pattern, by latency, then by all of it together.

        ``gather`` prices the all-gather of a set; here it is bounded by the narrowest ports, and first of all
        without it.
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
        orders = [
            np.lexsort((through, far, exchange)),
            np.lexsort((exchange, through, far)),
            np.argsort(total.round(9), kind="stable")[:most],
        ]
        quick = np.lexsort((exchange, far, through))
        best, at = float("inf"), quick[0]
        for index in quick[:_GATHERS] if gather is not None else ():
            if best <= through[index] * (1 + 1e-9):
                break
            assert gather is not None
            found = gather(self.chips(int(own[index]))).s_per_byte
            if found < best * (1 - 1e-9):
                best, at = found, index
        chosen = [orders[0][0], at, orders[1][0], *orders[2]]
        return [
            Block(
                self.chips(int(own[index])),
                float(exchange[index]),
                float(through[index]),
                float(far[index]) * self.hop_s,
            )
            for index in dict.fromkeys(int(index) for index in chosen)
        ][:most]

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
            load = ((self.members @ pairs) * self.members).sum(axis=1)
            inside = np.zeros(len(load))
            if source in place and target in place:
                inside = self.members[:, place[source]] * self.members[:, place[target]]
            np.maximum(
                slowest, load * (turns - (turns - 1) * inside) / rates[source, target], out=slowest
            )
        found: Array = slowest / np.maximum(self.sizes, 1)
        return found

    def chips(self, mask: int) -> tuple[int, ...]:
        """Positions of the members of a set."""
        return tuple(p for bit, p in enumerate(self.positions) if mask >> bit & 1)
