"""Replicas that share chips, directly or over others: what goes on in one bundle changes nothing in another.

Within a bundle, new replicas that are alike and stand on chips of the same old ones are one class; how many of each class have
started says all about it. Bundles that are built alike are of one form.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from math import prod

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import Role
from costmodel.tolerance import RELATIVE

#: classes of a bundle up to which bundles are compared
_COMPARED = 5

#: how many replicas of each class have started
Counts = tuple[int, ...]
Array = NDArray[np.float64]
#: requests/s of prefill, decode and mixed replicas
Rates = tuple[float, float, float]
_ROLES: tuple[Role, ...] = ("prefill", "decode", "mixed")


@dataclass(frozen=True)
class Part:
    """A replica for the order: its role and requests/s, its chips, and what is alike."""

    role: Role
    requests_per_s: float
    chips: frozenset[str]
    kind: Hashable

    @cached_property
    def rates(self) -> Rates:
        """Its requests/s by role."""
        prefill, decode, mixed = (self.requests_per_s * (self.role == role) for role in _ROLES)
        return prefill, decode, mixed


def added(rates: Rates, more: Rates, times: float = 1.0) -> Rates:
    """The sum of both, the second so many times."""
    prefill, decode, mixed = (one + times * two for one, two in zip(rates, more, strict=True))
    return prefill, decode, mixed


def together(parts: Sequence[Part]) -> Rates:
    """What replicas serve by role."""
    total: Rates = (0.0, 0.0, 0.0)
    for part in parts:
        total = added(total, part.rates)
    return total


@dataclass(frozen=True)
class Form:
    """How bundles are built.

    ``new``: rates of a replica of each class; ``number``: how many there are; ``old``: rates of each old replica, with the classes
    that need its chips. ``same``: orders of the classes by which the form looks the same.
    """

    new: tuple[Rates, ...]
    number: tuple[int, ...]
    old: tuple[tuple[Rates, frozenset[int]], ...]
    same: tuple[tuple[int, ...], ...]

    def started(self, counts: Counts, one: int) -> Counts:
        """How many have started once one of a class has, too."""
        return tuple(own + (at == one) for at, own in enumerate(counts))

    def look(self, counts: Counts) -> Counts:
        """Equal for counts that look the same."""
        return min(tuple(counts[at] for at in order) for order in self.same)

    def between(self, counts: Counts, later: Counts) -> int:
        """How many counts lie between, both included."""
        return prod(map(len, _ranges(counts, later)))

    def never_less(self, counts: Counts, later: Counts) -> bool:
        """Whether no role has less at the later counts than at any in between."""
        after, ranges = self.running(later), _ranges(counts, later)
        return all(
            more >= less * (1.0 - RELATIVE)
            for between in product(*ranges)
            for more, less in zip(after, self.running(between), strict=True)
        )

    def running(self, counts: Counts) -> Rates:
        """What serves where so many of each class have started."""
        prefill, decode, mixed = self._serving(counts)[0].tolist()
        return prefill, decode, mixed

    def loading(self, counts: Counts) -> Array:
        """What serves while one more of a class loads ``[classes, roles]``: what stands on its chips has stopped."""
        running, old = self._serving(counts)
        return np.asarray(running - self._needs.T @ old)

    def _serving(self, counts: Counts) -> tuple[Array, Array]:
        """What serves by role, and of that each old replica ``[old, roles]``."""
        started = np.array(counts, dtype=float)
        old = np.where((self._needs @ started > 0.0)[:, None], 0.0, self._old)
        return old.sum(axis=0) + started @ self._new, old

    @cached_property
    def _new(self) -> Array:
        return np.array(self.new)

    @cached_property
    def _old(self) -> Array:
        return np.array([rates for rates, _ in self.old]).reshape(len(self.old), len(_ROLES))

    @cached_property
    def _needs(self) -> Array:
        """1 where a class needs the chips of an old replica ``[old, classes]``."""
        found = np.zeros((len(self.old), len(self.new)))
        for row, (_, classes) in enumerate(self.old):
            found[row, sorted(classes)] = 1.0
        return found


def _ranges(counts: Counts, later: Counts) -> list[range]:
    return [range(one, two + 1) for one, two in zip(counts, later, strict=True)]


@dataclass(frozen=True, eq=False)
class Bundle:
    """One bundle: its form, and the new replicas of each class."""

    form: Form
    members: tuple[tuple[int, ...], ...]


def bundles_of(
    old: Sequence[Part], new: Sequence[Part], needs: Sequence[frozenset[int]]
) -> list[Bundle]:
    """The bundles of a move, those of one form with one object. ``needs``: by new replica, the old ones on its chips."""
    known: dict[Hashable, Form] = {}
    return [_bundle(old, new, needs, own, known) for own in _connected(needs)]


def _connected(needs: Sequence[frozenset[int]]) -> list[list[int]]:
    """New replicas that need chips of the same old ones, directly or over others."""
    home: dict[int, list[int]] = {}
    for at, own in enumerate(needs):
        joined = {id(home[o]): home[o] for o in sorted(own) if o in home}
        merged = sorted([at, *(one for part in joined.values() for one in part)])
        for one in merged:
            for o in needs[one]:
                home[o] = merged
    apart = [[at] for at, own in enumerate(needs) if not own]
    return sorted([*{id(part): part for part in home.values()}.values(), *apart])


def _bundle(
    old: Sequence[Part], new: Sequence[Part], needs: Sequence[frozenset[int]],
    own: Sequence[int], known: dict[Hashable, Form],
) -> Bundle:  # fmt: skip
    alike: dict[Hashable, list[int]] = {}
    for at in own:
        alike.setdefault((new[at].kind, needs[at]), []).append(at)
    classes = list(alike.values())
    places = range(len(classes))
    orders = list(permutations(places)) if len(classes) <= _COMPARED else [tuple(places)]
    standing = sorted(frozenset[int]().union(*(needs[at] for at in own)))

    def seen(order: tuple[int, ...]) -> tuple[object, ...]:
        """What the bundle looks like with its classes in such an order."""
        where = {one: place for place, one in enumerate(order)}
        there = (
            (repr(old[o].kind), sorted(where[c] for c in places if o in needs[classes[c][0]]))
            for o in standing
        )
        built = tuple((repr(new[classes[c][0]].kind), len(classes[c])) for c in order)
        return built, repr(sorted(there))

    looks = {order: seen(order) for order in orders}
    look = min(looks.values())
    first = next(order for order in orders if looks[order] == look)
    key: Hashable = look if len(orders) > 1 or len(classes) == 1 else (look, own[0])
    if key not in known:
        place = {one: at for at, one in enumerate(first)}
        known[key] = Form(
            tuple(new[classes[c][0]].rates for c in first),
            tuple(len(classes[c]) for c in first),
            tuple(
                (
                    old[o].rates,
                    frozenset(place[c] for c in places if o in needs[classes[c][0]]),
                )
                for o in standing
            ),
            tuple(tuple(place[c] for c in order) for order in orders if looks[order] == look),
        )
    return Bundle(known[key], tuple(tuple(classes[c]) for c in first))
