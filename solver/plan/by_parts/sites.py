"""What pools run dealt out to their clusters: whole stretches of service, each to one cluster.

A pool's groups are cut into stretches of hours on end; a stretch goes to the cluster where it costs least: where units
that finish are loaded again in the same hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from costmodel.plan.hours import Hours
from solver.plan.by_parts.by_model import Groups
from solver.plan.by_parts.pools import SAME, Pool, linear
from topology.errors import NoFeasibleLayout


@dataclass(frozen=True)
class _Stretch:
    """Hours on end in which a group of a column serves; as many as there are where it always does."""

    column: int
    begin: int
    hours: int


def dealt(
    asked: Hours, pools: list[Pool], together: Hours, groups: Groups, reserved: tuple[int, ...]
) -> tuple[Groups, tuple[int, ...]]:
    """Groups ``[hour, column]`` and reserved units of the clusters.

    A stretch that finds no room in the clusters of its pool goes to another pool, in as many groups as carry as much.
    Raises ``NoFeasibleLayout`` where there is no room for that either.
    """
    dealings = [_Dealing(asked, pool, together) for pool in pools]
    over = [
        one
        for dealing in dealings
        for one in _stretches(together, dealing.pool, groups)
        if dealing.deal(one) is None
    ]
    for one in over:
        _elsewhere(together, dealings, one)
    paid = [0] * len(asked.kinds)
    for dealing, units in zip(dealings, reserved, strict=True):
        for kind, own in zip(dealing.pool.kinds, dealing.reserved(units), strict=True):
            paid[kind] = own
    return sum((own.groups for own in dealings), start=dealings[0].groups * 0), tuple(paid)


def _elsewhere(together: Hours, dealings: list[_Dealing], one: _Stretch) -> None:
    """Deal a stretch to the pool where it costs least, or each half of it."""
    column = together.columns[one.column]
    rate = max(np.diff(column.requests_per_s))
    ways = []
    for other in together.of_model[column.model]:
        own = together.columns[other]
        if len(own.requests_per_s) < 2 or not linear(own.requests_per_s):
            continue
        each = own.requests_per_s[1]
        # a loss may take a larger group than before: then there is one more for each
        number = ceil(rate / each * (1 - SAME)) + (together.units_lost[1] if each > rate else 0)
        usd = sum(together.kinds[own.kind].on_demand_usd_per_hour)
        ways.append((usd * number * own.group, other, number))
    for _, other, number in sorted(ways):
        if dealings[together.columns[other].kind].deal_all(replace(one, column=other), number):
            return
    half = one.hours // 2
    if half < max(1, column.least_hours):
        raise NoFeasibleLayout(
            f"{column.name}: no cluster has room for what all of them together would carry",
            proven=False,
        )
    begin = (one.begin + half) % together.hours
    _elsewhere(together, dealings, replace(one, hours=half))
    _elsewhere(together, dealings, replace(one, begin=begin, hours=one.hours - half))


def _stretches(together: Hours, pool: Pool, groups: Groups) -> list[_Stretch]:
    """Stretches of a pool in the order in which they are dealt.

    First those that always serve, then those that are on in the hour in which fewest are, then the others as they
    begin. What begins later finds room wherever a unit is free when it begins: what was dealt before only ends.
    """
    hours = together.hours
    found = []
    for column in pool.columns:
        serving = groups[:, column]
        least = min(together.columns[column].least_hours, hours)
        found += [_Stretch(column, begin, on) for begin, on in _runs(serving, least)]
    on = np.zeros(hours)
    ahead = {c: together.columns[c].loading_hours for c in pool.columns}
    size = {c: together.columns[c].group for c in pool.columns}
    for one in found:
        if one.hours < hours:
            on[np.arange(one.begin - ahead[one.column], one.begin + one.hours) % hours] += size[
                one.column
            ]
    cut = int(on.argmin())

    def turn(one: _Stretch) -> tuple[int, int, int, int, int]:
        if one.hours == hours:
            return 0, 0, -size[one.column], one.column, 0
        begin = (one.begin - ahead[one.column] - cut) % hours
        crosses = begin + ahead[one.column] + one.hours > hours or not begin
        return 1 if crosses else 2, 0 if crosses else begin, -size[one.column], one.column, begin

    return sorted(found, key=turn)


def _runs(serving: NDArray[np.int64], least: int) -> Iterator[tuple[int, int]]:
    """First hour and number of hours of every group's stretch; hours repeat.

    Of groups that have served their least hours, the one that began last stops first.
    """
    hours = len(serving)
    first = int(serving.argmin())
    change = np.roll(serving - np.roll(serving, 1), -first)
    always = int(serving[first - 1])
    begun: list[int] = []
    late: list[int] = []  # ends of groups that were on before the first hour
    for hour, more in enumerate(change.tolist()):
        for _ in range(-more):
            old = [turn for turn, begin in enumerate(begun) if hour - begin >= least]
            if old:
                begin = begun.pop(old[-1])
                yield (first + begin) % hours, hour - begin
            else:
                late.append(hour)
        begun += [hour] * max(0, more)
    # as many are on at the end as before the first hour: the first to have begun is the first to end
    for begin, end in zip(begun, late, strict=True):
        on = max(least, end + hours - begin)
        if on > hours:  # one group always, and another for a while
            yield 0, hours
            on = max(least, on - hours)
        yield (first + begin) % hours, on
    for _ in range(always - len(late)):
        yield 0, hours


class _Dealing:
    """Stretches dealt to the clusters of one pool so far."""

    def __init__(self, asked: Hours, pool: Pool, together: Hours) -> None:
        self.asked, self.pool, self.together = asked, pool, together
        shape = (len(pool.kinds), asked.hours)
        self.units = np.array([asked.kinds[k].units for k in pool.kinds])
        self.serve, self.load, self.drain = (np.zeros(shape, np.int64) for _ in range(3))
        self.groups = np.zeros((asked.hours, len(asked.columns)), np.int64)
        first = pool.kinds[0]
        self.exchange = asked.exchanges[first]
        own = asked.kinds[first].on_demand_usd_per_hour
        self.usd = np.array([own[h] + asked.energy_usd(first, h) for h in range(asked.hours)])

    def used(self, serve: Groups, load: Groups, drain: Groups) -> Groups:
        """Units in use."""
        return serve + (np.maximum(load, drain) if self.exchange else load + drain)

    def deal_all(self, one: _Stretch, number: int) -> bool:
        """Find clusters for so many such stretches, or for none."""
        sites: list[int] = []
        for _ in range(number):
            site = self.deal(one)
            if site is None:
                for taken in sites:
                    self._put(one, taken, -1)
                return False
            sites.append(site)
        return True

    def deal(self, one: _Stretch) -> int | None:
        """Find a cluster for a stretch."""
        serve, load, drain = self._units(one)
        at = np.flatnonzero(serve + load + drain)
        more = self.used(
            self.serve[:, at] + serve[at],
            self.load[:, at] + load[at],
            self.drain[:, at] + drain[at],
        )
        extra = more - self.used(self.serve[:, at], self.load[:, at], self.drain[:, at])
        has = np.array([kind in self.pool.columns[one.column] for kind in self.pool.kinds])
        fits = has & (more <= self.units[:, None]).all(axis=1)
        if not fits.any():
            return None
        cost = np.where(fits, np.round(extra @ self.usd[at], 9), np.inf)
        room = (self.units[:, None] - more).min(axis=1)
        site = int(np.lexsort((room, cost))[0])
        self._put(one, site, 1)
        return site

    def _units(self, one: _Stretch) -> tuple[Groups, Groups, Groups]:
        """Units by hour that a stretch takes to serve, load and finish."""
        column = self.together.columns[one.column]
        hours, number = self.asked.hours, column.group
        serve, load, drain = (np.zeros(hours, np.int64) for _ in range(3))
        serve[(one.begin + np.arange(one.hours)) % hours] = number
        if one.hours < hours:
            for ahead in range(1, column.loading_hours + 1):
                load[(one.begin - ahead) % hours] += number
            for behind in range(column.draining_hours):
                drain[(one.begin + one.hours + behind) % hours] += number
        return serve, load, drain

    def _put(self, one: _Stretch, site: int, times: int) -> None:
        """Add a stretch to a cluster, or take it away."""
        tables = (self.serve, self.load, self.drain)
        units = self._units(one)
        for table, own in zip(tables, units, strict=True):
            table[site] += times * own
        column = self.pool.columns[one.column][self.pool.kinds[site]]
        self.groups[:, column] += times * units[0] // self.together.columns[one.column].group

    def reserved(self, units: int) -> tuple[int, ...]:
        """Reserved units by cluster: where they are in use for most money."""
        used = self.used(self.serve, self.load, self.drain)
        limits = [self.asked.kinds[k].reserved for k in self.pool.kinds]
        found = [least for least, _ in limits]
        worth = sorted(
            (-float(self.usd[used[site] > turn].sum()), site, turn)
            for site, (least, most) in enumerate(limits)
            for turn in range(least, most)
        )
        for _, site, _ in worth[: units - sum(found)]:
            found[site] += 1
        return tuple(found)
