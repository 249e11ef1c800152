"""Tiny questions of hours, and the best of all their plans by trying each one with the judge."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from math import prod

from costmodel.plan.hours import HOUR_S, Column, Decision, Hours, Kind
from costmodel.plan.judge import judge

HOURS = 3

Rows = list[list[tuple[int, ...]]]


def tiny(seed: int, most: int = 400, *, chips: bool = False) -> tuple[Hours, Rows]:
    """A question and, by hour, the groups that break no rule while all hours are like that one.

    Questions with more than ``most`` such plans are drawn again. ``chips``: of two kinds and one model that is asked for, a loss takes
    as many units as hold two chips, of which a unit of the first kind has one and of the second two.
    """
    rng = random.Random(seed)
    while True:
        asked = _drawn(rng)
        if chips:
            if len(asked.kinds) < 2:
                continue
            sized = tuple(replace(kind, size=1 + k) for k, kind in enumerate(asked.kinds))
            asleep = asked.demand[0], (0.0,) * HOURS
            asked = replace(asked, kinds=sized, spare=2, demand=asleep)
        rows = [alone(asked, hour) for hour in range(HOURS)]
        if prod(len(own) for own in rows) <= most:
            return asked, rows


def tiny_region(seed: int, most: int = 400) -> tuple[Hours, Rows]:
    """As :func:`tiny`, with two or three equal places of two or one units each, where groups carry alike in any number."""
    rng = random.Random(f"region {seed}")
    while True:
        units = rng.choice([(2, 2), (2, 1), (1, 1, 1)])
        first = replace(_kind(rng, "place", 2), reserved=rng.choice([(0, 0), (0, 1), (1, 1)]))
        kinds = tuple(
            replace(first, name=f"place {number}", units=own) for number, own in enumerate(units)
        )
        columns = []
        for model in range(2):
            group = rng.choice([1, 1, 1, 2]) if max(units) > 1 else 1
            one = float(rng.randint(5, 12) * group)
            start, drain = (
                rng.choice([0.0, 600.0, 2400.0, HOUR_S]),
                rng.choice([0.0, 300.0, 1800.0]),
            )
            least = rng.choice([1, 1, 2])
            columns += [
                Column(
                    f"model {model} in {number}", model, number, group,
                    tuple(n * one for n in range(own // group + 1)), start, drain, least,
                )
                for number, own in enumerate(units)
            ]  # fmt: skip
        demand = tuple(tuple(float(rng.randint(0, 9)) for _ in range(HOURS)) for _ in range(2))
        asked = Hours(("one", "other"), demand, kinds, tuple(columns), spare=rng.choice([0, 0, 1]))
        rows = [alone(asked, hour) for hour in range(HOURS)]
        if prod(len(own) for own in rows) <= most:
            return asked, rows


def best_of_all(asked: Hours, rows: Rows) -> float | None:
    """The least money of any valid plan by the judge; ``None`` where there is none."""
    best: float | None = None
    ranges = [range(kind.reserved[0], kind.reserved[1] + 1) for kind in asked.kinds]
    for groups in product(*rows):
        for reserved in product(*ranges):
            found = judge(asked, Decision(reserved, groups))
            if found.violations:
                break  # none of them is about reserved units here
            best = found.usd if best is None else min(best, found.usd)
    return best


def _drawn(rng: random.Random) -> Hours:
    """Three hours, two models, four chips: one kind of four units, or two kinds of two."""
    sizes = rng.choice([(4,), (4,), (2, 2)])
    kinds = tuple(_kind(rng, f"kind {index}", units) for index, units in enumerate(sizes))
    columns = []
    for model, index in product(range(2), range(len(sizes))):
        if rng.random() < 0.15 and index:
            continue
        group = rng.choice([1, 1, 1, 2])
        one = float(rng.randint(5, 12) * group)
        more = rng.choice([0.0, 0.5, -0.5])
        table = [0.0]
        for n in range(1, sizes[index] // group + 1):
            table.append(table[-1] + one + more * (n > 1))
        columns.append(
            Column(
                f"model {model} on {index}",
                model,
                index,
                group,
                tuple(table),
                start_s=rng.choice([0.0, 600.0, 2400.0, HOUR_S]),
                drain_s=rng.choice([0.0, 300.0, 1800.0]),
                least_hours=rng.choice([1, 1, 2]),
            )
        )
    return Hours(
        ("one", "other"),
        tuple(tuple(float(rng.randint(0, 13)) for _ in range(HOURS)) for _ in range(2)),
        kinds,
        tuple(columns),
        spare=rng.choice([0, 0, 1]),
        usd_per_kwh=rng.choice([(), (0.25, 0.5, 0.125)]),
        power_cap_w=rng.choice([None, None, 3200.0]),
    )


def _kind(rng: random.Random, name: str, units: int) -> Kind:
    least = rng.choice([0, 0, 1])
    day = float(rng.randint(4, 9))
    night = rng.choice([day, day / 2])
    return Kind(
        name,
        units,
        (least, rng.choice([least, units])),
        float(rng.randint(2, 6)),
        tuple(rng.choice([day, night]) for _ in range(HOURS)),
        power_w=float(rng.choice([500, 800, 1000])),
    )


def alone(asked: Hours, hour: int) -> list[tuple[int, ...]]:
    """Groups of one hour that break no rule where nothing changes from hour to hour."""
    same = replace(
        asked,
        demand=tuple((own[hour],) for own in asked.demand),
        kinds=tuple(
            replace(kind, on_demand_usd_per_hour=(kind.on_demand_usd_per_hour[hour],))
            for kind in asked.kinds
        ),
        usd_per_kwh=asked.usd_per_kwh[hour : hour + 1],
    )
    reserved = tuple(kind.reserved[0] for kind in asked.kinds)
    numbers = [range(len(one.requests_per_s)) for one in asked.columns]
    return [
        row for row in product(*numbers) if not judge(same, Decision(reserved, (row,))).violations
    ]
