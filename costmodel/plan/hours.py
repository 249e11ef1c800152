"""A question of hours: units to pay, layouts that a few whole units run, requests of models by hour.

Hours repeat: after the last one comes the first (of the next day, or week). Only plain numbers; where they come from
is no matter here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil

HOUR_S = 3600.0


@dataclass(frozen=True)
class Kind:
    """Whole units of one kind (a rack, a node): how many may be in use at once, and what they cost.

    ``reserved``: least and most units that are paid in every hour, used or not, ``reserved_usd_per_hour`` each. Units
    in use beyond them are rented by the hour: ``on_demand_usd_per_hour[hour]`` each, an hour begun is paid whole.
    ``power_w`` of a unit in use. ``size``: how much of what may be lost a unit holds.
    """

    name: str
    units: int
    reserved: tuple[int, int]
    reserved_usd_per_hour: float
    on_demand_usd_per_hour: tuple[float, ...]
    power_w: float = 0.0
    size: int = 1


@dataclass(frozen=True)
class Column:
    """What a group of units of one kind runs for one model.

    ``requests_per_s[n]``: what ``n`` such groups carry, from 0 groups to all that the units allow; it never falls.
    ``after_loss[n]``: what ``n`` groups still carry after the loss of any one unit; empty: what one group fewer does, as a
    group is lost with any of its units. A group loads for ``start_s`` before it serves, and finishes what it began for ``drain_s`` after
    it stops; it serves at least ``least_hours`` on end. ``shared``: columns with one name in it run on the same units, each on chips
    of its own: as many groups of each serve in every hour, and one of them has all the units, the others a ``group`` of 0.
    """

    name: str
    model: int
    kind: int
    group: int
    requests_per_s: tuple[float, ...]
    start_s: float = 0.0
    drain_s: float = 0.0
    least_hours: int = 1
    after_loss: tuple[float, ...] = ()
    shared: str = ""

    @property
    def stands_on(self) -> int:
        """Units that a group stands on, shared ones with it."""
        return max(1, self.group)

    def left(self, groups: int, lost: int) -> float:
        """Requests/s that so many groups carry after the loss of so many units, each of another group."""
        if not lost or not self.after_loss:
            return self.requests_per_s[max(0, groups - lost)]
        # what is lost before the last unit takes whole groups
        return self.after_loss[max(0, groups - lost + 1)]

    @property
    def loading_hours(self) -> int:
        """Hours before the first one of service in which a group loads."""
        return ceil(self.start_s / HOUR_S)

    @property
    def draining_hours(self) -> int:
        """Hours after the last one of service in which a group still finishes requests."""
        return ceil(self.drain_s / HOUR_S)


@dataclass(frozen=True)
class Hours:
    """What is asked: ``demand[model][hour]`` in requests/s, met in every hour after any loss.

    A loss takes as many units as hold ``spare``: so many units where each has the size 1, as many as have so many chips
    where that is their size.

    ``usd_per_kwh[hour]`` is paid for units in use, on top of their price; ``power_cap_w`` bounds them together.
    """

    models: tuple[str, ...]
    demand: tuple[tuple[float, ...], ...]
    kinds: tuple[Kind, ...]
    columns: tuple[Column, ...]
    spare: int = 0
    usd_per_kwh: tuple[float, ...] = ()
    power_cap_w: float | None = None

    @property
    def hours(self) -> int:
        """Hours until everything repeats."""
        return len(self.demand[0])

    @property
    def choices(self) -> int:
        """Numbers of groups to choose from, over all hours and columns: how large the question is."""
        return self.hours * sum(len(one.requests_per_s) for one in self.columns)

    @cached_property
    def of_kind(self) -> list[list[int]]:
        """Columns by kind of unit."""
        return [
            [index for index, one in enumerate(self.columns) if one.kind == kind]
            for kind in range(len(self.kinds))
        ]

    @cached_property
    def of_model(self) -> list[list[int]]:
        """Columns by model."""
        return [
            [index for index, one in enumerate(self.columns) if one.model == model]
            for model in range(len(self.models))
        ]

    @cached_property
    def together(self) -> list[list[int]]:
        """Columns that run on the same units, by what they share."""
        names = dict.fromkeys(one.shared for one in self.columns if one.shared)
        return [
            [index for index, one in enumerate(self.columns) if one.shared == name]
            for name in names
        ]

    @cached_property
    def exchanges(self) -> list[bool]:
        """By kind, whether a unit can finish one model's requests and load another within one hour."""
        return [
            max((self.columns[index].drain_s for index in own), default=0.0)
            + max((self.columns[index].start_s for index in own), default=0.0)
            <= HOUR_S
            for own in self.of_kind
        ]

    def energy_usd(self, kind: int, hour: int) -> float:
        """Electricity of a unit in use for an hour, USD."""
        return (
            self.kinds[kind].power_w / 1000.0 * self.usd_per_kwh[hour] if self.usd_per_kwh else 0.0
        )

    @cached_property
    def losses(self) -> list[list[dict[int, int]]]:
        """By model, groups lost by column, for every way in which units are lost, each of another group.

        A model without columns has one way, in which nothing is lost: what it asks for is missed all the same.
        """

        def lose(columns: list[int], missing: int) -> Iterator[tuple[int, ...]]:
            if missing <= 0:
                yield ()
                return
            for at, index in enumerate(columns):
                for others in lose(columns[at:], missing - self._size(index)):
                    yield (index, *others)

        found = []
        for own in self.of_model:
            if not own:
                found.append([dict[int, int]()])
                continue
            # the largest first: no unit is lost then that the others make up for
            ordered = sorted(own, key=lambda index: -self._size(index))
            found.append(
                [{index: lost.count(index) for index in own} for lost in lose(ordered, self.spare)]
            )
        return found

    @property
    def units_lost(self) -> tuple[int, int]:
        """How many units a loss takes at least and at most."""
        sizes = [kind.size for kind in self.kinds]
        return ceil(self.spare / max(sizes)), ceil(self.spare / min(sizes))

    @property
    def loss_words(self) -> str:
        """What may be lost."""
        if any(kind.size > 1 for kind in self.kinds):
            return f"any units that hold {self.spare:,} chips"
        return "any unit" if self.spare == 1 else f"any {self.spare} units"

    def _size(self, column: int) -> int:
        return self.kinds[self.columns[column].kind].size


@dataclass(frozen=True)
class Decision:
    """A plan: ``reserved[kind]`` units, and ``groups[hour][column]`` that serve."""

    reserved: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
