"""From an answer of the fleet model to replicas on pools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ortools.sat.python import cp_model

from solver.clock import Clock
from solver.fleet.asked import Fleet, fleet_of
from solver.fleet.beside import beside
from solver.fleet.items import Item
from solver.fleet.packing import Held, deal, pack_slices
from solver.fleet.variables import FleetVariables
from solver.shapes.pools import Pool, PoolClass
from solver.shapes.shapes import ROLES

_PREFILL, _DECODE = ROLES.index("prefill"), ROLES.index("decode")


class NotPacked(Exception):
    """An aggregated answer has no place on the pools (``proven``), or none was found in time."""

    def __init__(self, counts: dict[int, int], proven: bool):
        super().__init__("replicas do not fit their pools")
        self.counts = counts
        self.proven = proven


class Reader:
    """Reads fleets from answers; packs classes of which only the numbers of replicas were decided."""

    def __init__(self, fleet: FleetVariables, clock: Clock, limit_s: float, seed: int):
        self.model = fleet
        self.clock, self.limit_s, self.seed = clock, limit_s, seed

    def fleet(self, solver: cp_model.CpSolver | None) -> Fleet | None:
        """Replicas and their pools (``None`` without an answer). Raises :class:`NotPacked`."""
        if solver is None:
            return None
        model, found = self.model, self.stands(solver)
        plain = fleet_of(serving(found), model.classes, model.links)
        if model.links is None or not any(item.wide for item, _ in found):
            return plain
        units = model.links.uplinks.unit_of.tolist()
        close = fleet_of(serving(beside(found, model.classes, units)), model.classes, model.links)
        return close if close.requests_per_s >= plain.requests_per_s * (1 - 1e-9) else plain

    def stands(self, solver: cp_model.CpSolver) -> list[tuple[Item, tuple[Pool, ...]]]:
        """Replicas on the very pools that the answer says. Raises :class:`NotPacked`."""
        model = self.model
        #: pools of each replica of each item, one list per class it has slices in
        dealt: dict[int, list[list[Pool]]] = {}
        for pool_class in model.classes:
            held, counts = self._held(solver, pool_class)
            #: of each item, its slices in the pools that hold some
            by_item: dict[int, dict[int, Counter[int]]] = {}
            for pool, one in enumerate(held):
                for (place, chips), number in one.items():
                    if number:
                        by_item.setdefault(place, {}).setdefault(pool, Counter())[chips] = number
            for place, count in sorted(counts.items()):
                item = model.items[place]
                need = item.slices_in(pool_class.index)
                own = by_item.get(place, {})
                here = list(own)
                _trim(list(own.values()), need, count)
                stands = dealt.setdefault(place, [[] for _ in range(count)])
                for stand, pools in zip(stands, deal([*own.values()], need, count), strict=True):
                    stand += [pool_class.pools[here[pool]] for pool in pools]
        return [
            (model.items[place], in_order_of_parts(model.items[place], pools))
            for place in dealt
            for pools in dealt[place]
        ]

    def _held(
        self, solver: cp_model.CpSolver, pool_class: PoolClass
    ) -> tuple[list[Held], dict[int, int]]:
        """Slices in each pool of a class, and replicas of each item that has slices there."""
        model, index, pools = self.model, pool_class.index, range(len(pool_class.pools))
        counts = {
            p: solver.value(v) for p, v in model.count.items() if model.items[p].slices_in(index)
        }
        if index in model.aggregated:
            packed, impossible = pack_slices(
                counts, model.items, pool_class,
                clock=self.clock, limit_s=self.limit_s, seed=self.seed,
            )  # fmt: skip
            if packed is None:
                raise NotPacked(counts, impossible)
            return packed, counts
        held: list[Counter[tuple[int, int]]] = [Counter() for _ in pools]
        if index in model.patterns:
            filled = [
                uses
                for uses, variable in model.patterns[index]
                for _ in range(solver.value(variable))
            ]
            for pool, uses in enumerate(filled):
                for place, times in uses.items():
                    held[pool][place, model.items[place].slice_chips] += times
            return [dict(one) for one in held], counts
        tabled: set[int] = set()
        for (own, role, slices), (packing, places) in model.tables.items():
            if own != index:
                continue
            for pool in pools:
                for step, variable in model.local[index, pool, role, slices]:
                    if step and solver.value(variable):
                        for filled_by in packing.filling(step):
                            place = places[filled_by]
                            held[pool][place, model.items[place].slice_chips] += 1
                            tabled.add(place)
        for (place, chips, own, pool), variable in model.slices.items():
            if own == index:
                held[pool][place, chips] += solver.value(variable)
        for place in tabled:
            item = model.items[place]
            counts[place] = sum(one[place, item.slice_chips] for one in held) // item.slices
        return [dict(one) for one in held], counts


def serving(
    stands: Sequence[tuple[Item, tuple[Pool, ...]]],
) -> list[tuple[Item, tuple[Pool, ...]]]:
    """Without prefill replicas that can hand over to nobody: their KV may not leave, nothing decodes there."""
    decoding = {
        pools[0].domain for item, pools in stands if item.role == _DECODE and len(item.holding) == 1
    }
    return [
        (item, pools)
        for item, pools in stands
        if item.role != _PREFILL or item.leaves or pools[0].domain in decoding
    ]


def in_order_of_parts(item: Item, pools: Sequence[Pool]) -> tuple[Pool, ...]:
    """Pools that were dealt class by class, in each the most chips first, in the order of the item's parts."""
    dealt = sorted(range(len(pools)), key=lambda at: (item.parts[at][0], -item.parts[at][1]))
    placed = dict(zip(dealt, pools, strict=True))
    return tuple(placed[at] for at in range(len(pools)))


def _trim(held: list[Counter[int]], need: Counter[int], replicas: int) -> None:
    """Drop what a pattern holds beyond the replicas, from the emptiest pools."""
    for chips, number in need.items():
        excess = sum(one[chips] for one in held) - number * replicas
        for one in sorted(held, key=lambda one: one.total()):
            dropped = min(excess, one[chips])
            one[chips] -= dropped
            excess -= dropped
