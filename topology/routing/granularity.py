"""What a replica may take of a domain: any chips, whole units such as trays, or one rectangular slice of a torus.

A cluster file names the ways its domains are sold; a question chooses one. Which sets serve quickly is the fabric's
business. :meth:`Granularity.refusal` is the judge's side: it looks at the chips of a replica alone; the other methods
are what a search asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product
from math import comb, prod

from topology.errors import InstanceError, Problem
from topology.fabric import Fabric
from topology.routing.blocks import ChipBlock, by_speed, front
from topology.routing.boxes import Axis, position_of, site_of

#: how a domain is sold: so many chips in a row at a time, or boxes of a torus
Sold = int | tuple[tuple[int, ...], ...]

#: choices of units that are told apart where chips differ in links
_FEW_SETS = 100


class Granularity:
    """Any chips of a domain may serve together."""

    #: chips that are only taken together, in a row
    unit = 1
    #: whether a replica may lie in several domains
    spans = True
    #: what replicas take, in words, where that is not any chips
    said = ""

    def __init__(self, fabric: Fabric):
        self.fabric = fabric

    def parts(self, usable: Sequence[int]) -> list[list[int]]:
        """Positions that replicas may stand on, by parts which a replica does not leave; the largest first."""
        there = set(usable)
        return [sorted(there & part) for part in self.fabric.parts]

    def allows(self, count: int) -> bool:
        """Whether a replica may take so many chips of the domain."""
        return count >= 1

    def refusal(self, members: Sequence[int]) -> str | None:
        """Why a replica may not take exactly these chips of the domain; ``None`` where it may."""
        return None

    def blocks(
        self, candidates: Sequence[int], count: int, most: int, *, gathers: bool = False
    ) -> list[ChipBlock]:
        """Sets of ``count`` of the candidates that a replica may take, at most so many, good ones first."""
        return self.fabric.blocks(candidates, count, most, gathers=gathers)

    def quickest(
        self, candidates: Sequence[int], count: int, most: int, *, gathers: bool = False
    ) -> list[ChipBlock]:
        """Of :meth:`blocks` those that no other one is quicker than in all respects."""
        return self.fabric.quickest(candidates, count, most, gathers=gathers)


class Units(Granularity):
    """Whole units of ``unit`` chips in a row, from the first chip on: the trays of a rack."""

    def __init__(self, fabric: Fabric, unit: int):
        super().__init__(fabric)
        self.unit = unit
        self.said = f"replicas on whole units of {unit} chips in a row"

    def parts(self, usable: Sequence[int]) -> list[list[int]]:
        """Chips of the units that work and are free as a whole. A unit of two types of chips serves nobody."""
        return [self._whole(part) for part in super().parts(usable)]

    def _whole(self, positions: Sequence[int]) -> list[int]:
        """Of some positions those in units of one type that are there as a whole, in order."""
        there, own = set(positions), list[int]()
        for first in range(0, len(self.fabric.chips) - self.unit + 1, self.unit):
            row = range(first, first + self.unit)
            if there.issuperset(row) and len({self.fabric.chips[at].name for at in row}) == 1:
                own += row
        return own

    def allows(self, count: int) -> bool:
        """Multiples of the unit."""
        return count >= 1 and count % self.unit == 0

    def refusal(self, members: Sequence[int]) -> str | None:
        """The first unit of which only a part is taken."""
        taken: dict[int, int] = {}
        for position in members:
            taken[position // self.unit] = taken.get(position // self.unit, 0) + 1
        for unit, count in sorted(taken.items()):
            if count != self.unit:
                first = unit * self.unit
                return f"takes {count} of chips g{first} to g{first + self.unit - 1}, sold {self.unit} at a time"
        return None

    def blocks(
        self, candidates: Sequence[int], count: int, most: int, *, gathers: bool = False
    ) -> list[ChipBlock]:
        """Sets of whole units: every one where there are few, else the first."""
        own = self._whole(candidates)
        units = [tuple(own[at : at + self.unit]) for at in range(0, len(own), self.unit)]
        number = count // self.unit
        many = self.fabric.interchangeable_chips or comb(len(units), number) > _FEW_SETS
        if most == 1 or many:
            return [self.fabric.priced(tuple(own[:count])) or ChipBlock(tuple(own[:count]))]
        sets = [sum(chosen, ()) for chosen in combinations(units, number)]
        found = [block for one in sets if (block := self.fabric.priced(one)) is not None]
        return by_speed(found)[:most] if found else [ChipBlock(tuple(own[:count]))]

    def quickest(
        self, candidates: Sequence[int], count: int, most: int, *, gathers: bool = False
    ) -> list[ChipBlock]:
        """Of :meth:`blocks` those that no other one is quicker than in all respects."""
        return front(self.blocks(candidates, count, most, gathers=gathers))


class Slices(Granularity):
    """One box of a torus, of a shape on the list and on the grid of such boxes.

    Each shape divides the next, so that boxes nest: any slices whose chips are no more than a box holds fit
    into it side by side. Shapes that the domain does not hold are left out, and those longer than half a
    ring without being the whole of it, whose shortest ways would leave the slice. The links of a slice are then those
    between its own chips: an axis closes to a ring only where the slice has the domain's whole ring.
    """

    spans = False

    def __init__(self, fabric: Fabric, axes: Sequence[Axis], shapes: Sequence[tuple[int, ...]]):
        super().__init__(fabric)
        self.axes = tuple(axes)
        self.sides = tuple(axis.side for axis in axes)
        self.shapes = {
            prod(shape): shape
            for shape in sorted(shapes, key=prod)
            if all(_closed(side, axis) for side, axis in zip(shape, axes, strict=True))
        }
        known = _listed(tuple(self.shapes.values()))
        self.said = (
            f"each replica on one slice of a torus, of {known} chips, side by side on a grid"
        )

    def parts(self, usable: Sequence[int]) -> list[list[int]]:
        """The largest boxes that work and are free as a whole; none of them lies in another."""
        left, found = set(usable), []
        for shape in reversed(self.shapes.values()):
            for box in self._boxes(shape):
                if left.issuperset(box) and self._linked(box):
                    found.append(sorted(box))
                    left.difference_update(box)
        return found

    def allows(self, count: int) -> bool:
        """Chips of a shape on the list."""
        return count in self.shapes

    def refusal(self, members: Sequence[int]) -> str | None:
        """That the chips are no box, not of a shape on the list, off its grid, or that a link of it has failed."""
        sites = [site_of(position, self.sides) for position in members]
        along = list(zip(*sites, strict=True))
        low = tuple(min(places) for places in along)
        shape = tuple(max(places) - min(places) + 1 for places in along)
        said = _listed((shape,))
        if prod(shape) != len(set(members)):
            return f"takes {len(members)} chips that are no box"
        if shape not in self.shapes.values():
            return f"takes a box of {said}; sold are {_listed(tuple(self.shapes.values()))}"
        if any(at % side for at, side in zip(low, shape, strict=True)):
            return f"takes a box of {said} from {low} on, which is off the grid of such slices"
        if not self._linked(members):
            return f"takes a box of {said} with a failed link in it"
        return None

    def blocks(
        self, candidates: Sequence[int], count: int, most: int, *, gathers: bool = False
    ) -> list[ChipBlock]:
        """Boxes on the grid, which are all alike."""
        free = frozenset(candidates)
        found = [
            box
            for box in self._boxes(self.shapes[count])
            if free.issuperset(box) and self._linked(box)
        ]
        if not found:
            return []
        first = self.fabric.priced(found[0]) or ChipBlock(found[0])
        return [ChipBlock(box, *first.speed) for box in found[:most]]

    def quickest(
        self, candidates: Sequence[int], count: int, most: int, *, gathers: bool = False
    ) -> list[ChipBlock]:
        """One box, for all are alike."""
        return self.blocks(candidates, count, 1, gathers=gathers)

    def _boxes(self, shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Every box of a shape on the grid of such boxes."""
        corners = [
            range(0, length - side + 1, side)
            for length, side in zip(self.sides, shape, strict=True)
        ]
        for corner in product(*corners):
            ranges = [range(low, low + side) for low, side in zip(corner, shape, strict=True)]
            yield tuple(position_of(site, self.sides) for site in product(*ranges))

    def _linked(self, box: Sequence[int]) -> bool:
        """Whether every link between chips of a box works."""
        if not self.fabric.failed:
            return True
        inside, graph = set(box), self.fabric.graph
        for position in box:
            site = site_of(position, self.sides)
            for number, axis in enumerate(self.axes):
                beside = list(site)
                beside[number] = (site[number] + 1) % axis.side
                other = position_of(beside, self.sides)
                joined = other in inside and other != position and (axis.ring or beside[number])
                if joined and not graph.has_edge(f"g{position}", f"g{other}"):
                    return False
        return True


def granularity_of(fabric: Fabric, sold: Sold | None, place: str) -> Granularity:
    """What replicas may take of a domain sold so. Raises ``InstanceError``."""
    if sold is None:
        return Granularity(fabric)
    if isinstance(sold, int):
        return Units(fabric, sold)
    axes = getattr(fabric, "axes", None)
    if axes is None:
        raise InstanceError(Problem(place, f"boxes are cut from a torus, not from {fabric.kind}"))
    if any(len(shape) != len(axes) for shape in sold):
        message = f"shapes need {len(axes)} sides each, as the torus has, got {_listed(sold)}"
        raise InstanceError(Problem(place, message))
    ordered = sorted(sold, key=prod)
    for small, large in pairwise(ordered):
        if small == large or any(b % a for a, b in zip(small, large, strict=True)):
            message = f"each shape must divide the next, got {_listed((small, large))}"
            raise InstanceError(Problem(place, message))
    slices = Slices(fabric, axes, ordered)
    if not slices.shapes:
        message = f"none of {_listed(sold)} fits a torus of {_listed((slices.sides,))}"
        raise InstanceError(Problem(place, message))
    return slices


def _listed(shapes: Sequence[Sequence[int]]) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in shapes)


def _closed(side: int, axis: Axis) -> bool:
    """Whether shortest ways between chips of a slice stay in it along an axis."""
    return side <= axis.side and (side == axis.side or not axis.ring or 2 * side <= axis.side)
