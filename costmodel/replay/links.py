"""Hand-overs that leave a domain: they share its NICs, those of the target, and the leaves' links to the spines."""

from __future__ import annotations

from dataclasses import dataclass, field

from costmodel.replica.fleet import PricedLayout
from topology.scaleout.uplinks import Uplinks

#: a cut in one direction: around a domain or a unit, out of it or into it, and which
_Cut = tuple[str, int]


@dataclass
class Links:
    """Bytes/s that passes leave free of each cut, and when its hand-overs are through: one after another."""

    room: Uplinks
    _free_s: dict[_Cut, float] = field(default_factory=dict)

    @classmethod
    def beside(cls, links: Uplinks, priced: PricedLayout) -> Links:
        """All that a cluster's links carry beside the traffic of the layout's own passes."""
        passes = priced.passes
        return cls(Uplinks(links.domain - passes.out, links.unit - passes.unit_out, links.unit_of))

    def sent_s(self, source: int, target: int, now: float, moved: float, alone_s: float) -> float:
        """When bytes that start now in one domain are in another; ``alone_s`` is what they take alone.

        A cut without capacity delays nothing: no layout that is valid sends anything across it.
        """
        ends = now + alone_s
        for cut, capacity in self._cuts(source, target):
            if capacity > 0:
                through = max(now, self._free_s.get(cut, 0.0)) + moved / capacity
                self._free_s[cut] = through
                ends = max(ends, through)
        return ends

    def _cuts(self, source: int, target: int) -> list[tuple[_Cut, float]]:
        """Cuts that are crossed, with their bytes/s."""
        room = self.room
        found: list[tuple[_Cut, float]] = [
            (("out", source), float(room.domain[source])),
            (("into", target), float(room.domain[target])),
        ]
        units = int(room.unit_of[source]), int(room.unit_of[target])
        if units[0] != units[1]:
            found += [
                (("up", units[0]), float(room.unit[units[0]])),
                (("down", units[1]), float(room.unit[units[1]])),
            ]
        return found
