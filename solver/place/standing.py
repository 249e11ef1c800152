"""A shape on the chips that it is tried on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.passes.communication import GroupRates, rates_of_chips
from costmodel.question.exchange import domain_runs
from costmodel.question.instance import Instance
from solver.bounds.pricing import Pricer
from solver.place.build import stage_chips
from solver.shapes.group_rates import as_one, moved_for
from solver.shapes.pools import Pool, PoolClass, pick_chips
from solver.shapes.shapes import ROLES, ShapeTable
from solver.shapes.spans import joined_best, pools_of
from solver.shapes.stands import neighbours_matter, stands

#: a slice of a replica: its pool, chips that are free there, and how many of them
Slice = tuple[Pool, Sequence[str], int]


@dataclass(frozen=True)
class Standing:
    """A shape on chips, representative or named: ``chips[s]`` are those of stage ``s``, of one class.

    ``rates``: what its collectives reach; ``alike``: every stage reaches exactly these; ``quickest``: no other
    chips that the shape may stand on reach more.
    """

    instance: Instance
    shape: dict[str, int]
    pool_class: PoolClass
    chips: list[list[str]]
    rates: GroupRates
    alike: bool
    quickest: bool = True


def speed(rates: GroupRates) -> tuple[float, ...]:
    """The rates as numbers: what tells two standings of a shape apart."""
    return tuple(float(getattr(rates, name)) for name in GroupRates.__dataclass_fields__)


def standings(
    instance: Instance,
    shapes: ShapeTable,
    row: int,
    pricer: Pricer,
    slices: Sequence[Slice] | None = None,
) -> list[Standing]:
    """A row of the shape table on chips of its pools, or of given slices.

    One, on the first chips, where they cannot be told apart; else those of the ways worth trying that no
    other is at least as quick as in all respects.
    """
    shape, parts = shapes.row(row), shapes.parts(row)
    home = pricer.classes[shape["pool_class"]]
    if slices is None:
        pools = pools_of(parts, pricer.classes)
        slices = [(p, p.chips, count) for p, (_, count) in zip(pools, parts, strict=True)]
    if not any(neighbours_matter(instance.cluster, pool.domain) for pool, _, _ in slices):
        chosen = [
            pick_chips(instance.cluster, pool.domain, free, count, leaving=len(slices) > 1)
            for pool, free, count in slices
        ]
        rates, alike = pricer.rates_of(shapes, row)
        best = joined_best(instance.cluster, pricer.classes, parts)
        return [Standing(instance, shape, home, stage_chips(shape, chosen), rates, alike, best)]
    ways = pricer.ways_of(shapes, row)
    # how far prompts' KV goes inside the domain is left to the fleet, and the bound takes the nearest chip
    settled = len(ways) == 1 and (ROLES[shape["role"]] != "prefill" or instance.slo.ttft is None)
    moe = instance.operations.moe
    efficiency = instance.profile.for_chip(home.chip.name)
    kept: list[Standing] = []
    for stand in stands(instance.cluster, shape, slices):
        moved = moved_for(instance, home.chip, shape, domain_runs(instance.cluster, stand))
        own = rates_of_chips(
            instance.cluster, stand, shape["tp"], moe.top_k if moe else 0, efficiency, moved
        )
        reached, same = as_one(own)
        chips = [list(stage) for stage in stand]
        one = Standing(
            instance,
            shape,
            home,
            chips,
            reached,
            same,
            settled and speed(reached) == speed(ways[0]),
        )
        if not any(_no_slower(other, one) for other in kept):
            kept = [other for other in kept if not _no_slower(one, other)] + [one]
    return kept


def _no_slower(one: Standing, other: Standing) -> bool:
    pairs = zip(speed(one.rates), speed(other.rates), strict=True)
    return all(a <= b * (1 + 1e-12) for a, b in pairs)
