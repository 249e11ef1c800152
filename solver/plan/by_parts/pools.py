"""Equal clusters of a region as one pool of units: where price, power and what groups carry are the same."""

from __future__ import annotations

from dataclasses import dataclass, replace

from costmodel.plan.hours import Column, Hours, Kind

#: rates that are as many times that of one group, but for rounding
SAME = 1e-9


@dataclass(frozen=True)
class Pool:
    """Equal kinds, and each of the pool's columns in the columns of those kinds that have it."""

    kinds: tuple[int, ...]
    columns: dict[int, dict[int, int]]


def pooled(asked: Hours) -> tuple[Hours, list[Pool]]:
    """The question with equal kinds as one, and what each kind and column stands for."""
    members: list[list[int]] = []
    for kind in sorted(range(len(asked.kinds)), key=lambda k: -asked.kinds[k].units):
        for own in members:
            if _alike(asked, own[0], kind):
                own.append(kind)
                break
        else:
            members.append([kind])
    kinds: list[Kind] = []
    columns: list[Column] = []
    pools = []
    for number, own in enumerate(members):
        first = asked.kinds[own[0]]
        least, most = (sum(asked.kinds[k].reserved[end] for k in own) for end in (0, 1))
        units = sum(asked.kinds[k].units for k in own)
        kinds.append(replace(first, units=units, reserved=(least, most)))
        stands: dict[int, dict[int, int]] = {}
        for index in asked.of_kind[own[0]]:
            one = asked.columns[index]
            here = {
                k: c for k in own for c in asked.of_kind[k] if _key(asked, c) == _key(asked, index)
            }
            stands[len(columns)] = here
            columns.append(replace(one, kind=number, requests_per_s=_together(asked, here)))
        pools.append(Pool(tuple(own), stands))
    return replace(asked, kinds=tuple(kinds), columns=tuple(columns)), pools


def _key(asked: Hours, column: int) -> tuple[int, int, float, float, int]:
    one = asked.columns[column]
    return one.model, one.group, one.start_s, one.drain_s, one.least_hours


def _together(asked: Hours, columns: dict[int, int]) -> tuple[float, ...]:
    """What groups of equal columns carry, from none to all."""
    tables = [asked.columns[c].requests_per_s for c in columns.values()]
    if len(tables) == 1:
        return tables[0]
    one = max(tables, key=len)[1] if max(map(len, tables)) > 1 else 0.0
    return tuple(n * one for n in range(sum(len(table) - 1 for table in tables) + 1))


def _alike(asked: Hours, large: int, small: int) -> bool:
    """Whether the units of two kinds are equal. The smaller one may lack groups that it has no room for."""
    one, other = asked.kinds[large], asked.kinds[small]
    if (one.reserved_usd_per_hour, one.on_demand_usd_per_hour, one.power_w, one.size) != (
        other.reserved_usd_per_hour, other.on_demand_usd_per_hour, other.power_w, other.size,
    ):  # fmt: skip
        return False
    rates = [
        {
            _key(asked, c): table[1]
            for c in asked.of_kind[kind]
            if len(table := asked.columns[c].requests_per_s) > 1
        }
        for kind in (large, small)
    ]
    fits = {key: rate for key, rate in rates[0].items() if key[1] <= other.units}
    tables = (
        asked.columns[c].requests_per_s for kind in (large, small) for c in asked.of_kind[kind]
    )
    return fits == rates[1] and all(linear(table) for table in tables)


def linear(table: tuple[float, ...]) -> bool:
    """Whether so many groups carry so many times what one does."""
    return all(abs(own - n * table[1]) <= SAME * own for n, own in enumerate(table) if n)
