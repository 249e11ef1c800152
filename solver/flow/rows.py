"""Rows of sections: which of them, how often and in which order of rooms, so that all layers are held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ortools.sat.python import cp_model

from solver.clock import Clock
from solver.flow.groups import Group
from solver.flow.network import Network
from solver.flow.sections import Section

#: work allowed for one model, seconds of an idle core
_ROW_S = 2.0

#: group and tokens/s of the nodes at an end of a section
End = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Row:
    """Sections in order; ``borders`` counts those before each change of room."""

    sections: tuple[Section, ...]

    @property
    def borders(self) -> list[int]:
        """Positions of sections that begin another room than the one before."""
        pairs = enumerate(pairwise(self.sections), 1)
        return [at for at, (one, other) in pairs if one.room != other.room]


class Rows:
    """Rows of sections. What a border was seen to carry is remembered."""

    def __init__(self, groups: Sequence[Group], network: Network, *, clock: Clock, seed: int):
        self.groups = groups
        self.network = network
        self.clock = clock
        self.seed = seed
        self._links: dict[tuple[int, int], float] = {}
        self._carried: dict[tuple[End, End], float] = {}

    def learn(self, row: Row, border: int, tokens_per_s: float) -> None:
        """Remember what the best nodes of a border's groups carry."""
        self._carried[row.sections[border - 1].ends, row.sections[border].starts] = tokens_per_s

    def find(self, sections: Sequence[Section], order: Sequence[int], flow: float) -> Row | None:
        """A row whose rooms come in this order, each used; ``None`` where there is none or none was found."""
        model = cp_model.CpModel()
        layers = self.network.layers
        own = [section for section in sections if section.room in order]
        times = [model.new_int_var(0, layers // s.length, "") for s in own]
        model.add(sum(s.length * y for s, y in zip(own, times, strict=True)) == layers)
        for index, group in enumerate(self.groups):
            uses = [
                n * y for s, y in zip(own, times, strict=True) for g, n in s.usage if g == index
            ]
            model.add(sum(uses) <= len(group.nodes))
        first = self._ends_of(model, own, times, order[1:])
        last = self._ends_of(model, own, times, order[:-1])
        for i in range(len(own)):  # one section may be both only where it is given twice
            both = [ends[i] for ends in (first, last) if i in ends]
            model.add(sum(both) <= times[i])
        for before, after in pairwise(order):
            heads: dict[End, list[cp_model.IntVar]] = {}
            for i, variable in first.items():
                if own[i].room == after:
                    heads.setdefault(own[i].starts, []).append(variable)
            reached: dict[End, list[cp_model.IntVar]] = {}
            for i, variable in last.items():
                if own[i].room != before:
                    continue
                ends = own[i].ends
                if ends not in reached:
                    reached[ends] = [
                        head
                        for starts, these in heads.items()
                        if self._carries(ends, starts, flow)
                        for head in these
                    ]
                model.add_bool_or([variable.negated(), *reached[ends]])
        solver, status = self.clock.run(model, seed=self.seed, limit_s=_ROW_S)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        chosen: list[Section] = []
        for room in order:
            left = {i: solver.value(times[i]) for i, s in enumerate(own) if s.room == room}
            head = next((i for i in left if i in first and solver.value(first[i])), None)
            tail = next((i for i in left if i in last and solver.value(last[i])), None)
            for end in (head, tail):
                if end is not None:
                    left[end] -= 1
            chosen += [] if head is None else [own[head]]
            chosen += [own[i] for i, number in left.items() for _ in range(number)]
            chosen += [] if tail is None else [own[tail]]
        return Row(tuple(chosen))

    def _ends_of(
        self,
        model: cp_model.CpModel,
        own: Sequence[Section],
        times: Sequence[cp_model.IntVar],
        rooms: Sequence[int],
    ) -> dict[int, cp_model.IntVar]:
        """One section of each of the rooms is chosen to stand at its end."""
        found = {i: model.new_bool_var("") for i, s in enumerate(own) if s.room in rooms}
        for room in rooms:
            model.add_exactly_one(v for i, v in found.items() if own[i].room == room)
        return found

    def _carries(self, ends: End, starts: End, flow: float) -> bool:
        """Whether the best links between these groups could carry the flow, for all that is known."""
        if self._carried.get((ends, starts), flow) < flow * (1 - 1e-9):
            return False
        link = {(g, h): self._link(g, h) for g, _ in ends for h, _ in starts}
        out = sum(min(rate, sum(link[g, h] for h, _ in starts)) for g, rate in ends)
        into = sum(min(rate, sum(link[g, h] for g, _ in ends)) for h, rate in starts)
        return min(out, into) >= flow * (1 - 1e-9)

    def _link(self, one: int, other: int) -> float:
        if (one, other) not in self._links:
            self._links[one, other] = max(
                self.network.speed(a, b)
                for a in self.groups[one].nodes
                for b in self.groups[other].nodes
                if a != b
            )
        return self._links[one, other]
