"""``buy``: dollars per day of a fleet that is owned or rented, and of an API, against volume; where they cross.

Prices are those of ``instances/prices`` (:mod:`costmodel.money.offers`) or the study's own parameters. A fleet is the
fewest whole units that carry the peak after a loss (:mod:`solver.plan.sizing.size`), paid round the clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from costmodel.money.day import (
    api_usd_per_day,
    owned_usd_per_day,
    paid_back_days,
    power_usd_per_day,
    rented_usd_per_day,
)
from costmodel.money.offers import api_of, bought, rented
from costmodel.question.instance import Instance
from rackfit.figures.chart import Chart, Series
from rackfit.studies.base import SIZED, Axes, Options, Own, Row, Study, solved
from rackfit.wording import counted
from solver.clock import Clock
from solver.plan.sizing.size import Sized, Wanted, size
from topology.errors import InstanceError, Problem

_RATE, _CROSSING = "mean_rate", "crossing"
#: electricity, and where that price is said to be usual for data centres (0.04 to 0.18 elsewhere)
_KWH = 0.08
_KWH_SOURCE = "https://aiinframap.com/tools/energy/datacenter-power-calculator"
#: what a fleet is paid by, with the words of figure and text
WAYS = {
    "owned_low": "owned, lowest price", "owned_high": "owned, highest price",
    "rented_low": "rented, lowest price", "rented_high": "rented, highest price",
}  # fmt: skip
#: units up to which the volume is sought at which a fleet costs no more than an API
_MOST_UNITS = 16


@dataclass(frozen=True)
class Money:
    """Dollars per chip and day of every way that has a price, of a request at an API, and where prices come from."""

    chip_day: Mapping[str, float]
    request: float | None
    paid_back_days: tuple[float, float] | None
    sources: str


def _axes(base: Mapping[str, Any]) -> list[Axes]:
    """Three volumes, requests/s on average, around the scenario's rate where it has one; and the ways whose crossing with the API is sought."""
    rate = base.get("rate")
    middle = float(rate) if isinstance(rate, int | float) else 10.0
    return [{_RATE: [middle / 10, middle, 10 * middle]}, {_CROSSING: list(WAYS)}]


def money(instance: Instance, own: Own) -> Money:
    """What is known of prices: parameters first, then the catalogue. Raises ``InstanceError``."""
    names = instance.cluster.chip_names
    if len(names) != 1:
        raise InstanceError(
            Problem("cluster", f"has {len(names)} types of chip; a price is for one")
        )
    chip = instance.cluster.chips[0].chip
    prices, work = instance.scenario.prices, instance.workload
    years, kwh = _positive(own, "years"), _positive(own, "usd_per_kwh")
    power = power_usd_per_day(chip, prices.power_overhead, kwh)
    basis = _KWH_SOURCE if kwh == _KWH else "given"
    said = [
        f"electricity {kwh:g} USD/kWh ({basis}), {prices.power_overhead:g} W drawn per watt of chip, "
        f"chips written off over {years:g} years"
    ]
    found: dict[str, float] = {}
    for key in ("owned_usd_per_chip", "rented_usd_per_chip_hour", "api_usd_per_request"):
        if own[key] is not None:
            said.append(f"{key} {_positive(own, key):g}: given")
    capex = _ends(own, "owned_usd_per_chip")
    offer = bought(chip.name)
    if capex is None and offer is not None:
        capex = offer.usd[0] / offer.chips, offer.usd[1] / offer.chips
        said.append(f"{offer.name} ({offer.date}): {'; '.join(offer.sources)}")
    if capex is None:
        said.append(
            f"no price is known at which {chip.name} is bought (owned_usd_per_chip gives one)"
        )
    else:
        for name, usd in zip(("owned_low", "owned_high"), capex, strict=True):
            found[name] = owned_usd_per_day(usd, years, power)
    rent, listed = _ends(own, "rented_usd_per_chip_hour"), rented(chip.name)
    if rent is None and listed is not None:
        rent = listed.usd_per_chip_hour
        said.append(f"{listed.name} ({listed.date}): {'; '.join(listed.sources)}")
    if rent is None:
        said.append(
            f"no price is known at which {chip.name} is rented (rented_usd_per_chip_hour gives one)"
        )
    else:
        for name, usd in zip(("rented_low", "rented_high"), rent, strict=True):
            found[name] = rented_usd_per_day(usd)
    back = None
    if capex is not None and rent is not None:
        back = (
            paid_back_days(capex[0], power, rented_usd_per_day(rent[1])),
            paid_back_days(capex[1], power, rented_usd_per_day(rent[0])),
        )
    request = own["api_usd_per_request"]
    api = api_of(instance.scenario.model)
    if request is not None:
        request = _positive(own, "api_usd_per_request")
    elif api is not None:
        request = api.usd_per_request(work.input_tokens, work.cached_tokens, work.output_tokens)
        said.append(f"{api.name} ({api.date}): {'; '.join(api.sources)}")
    else:
        said.append(
            f"no API price of {instance.scenario.model} is known (api_usd_per_request gives one)"
        )
    return Money(found, request, back, " | ".join(said))


def _positive(own: Own, key: str) -> float:
    try:
        value = float(own[key])
    except (TypeError, ValueError):
        value = 0.0
    if not 0 < value < 1e9:
        message = f"expected a number above 0 and below 1,000,000,000, got {str(own[key])[:40]!r}"
        raise InstanceError(Problem(key, message))
    return value


def _ends(own: Own, key: str) -> tuple[float, float] | None:
    """A price of the study's own, as lowest and highest."""
    if own[key] is None:
        return None
    value = _positive(own, key)
    return value, value


def _answer(instance: Instance, own: Own, options: Options) -> Row:
    known = money(instance, own)
    if own[_CROSSING] is not None:
        return _crossing(instance, own, options, known)
    rate = _positive(own, _RATE)
    fleet = _fleet(instance, own, options, rate)
    row: Row = {"price_sources": known.sources, "api_usd_per_day": None}
    if known.request is not None:
        row["api_usd_per_day"] = api_usd_per_day(rate, known.request)
    chips = None if fleet.count is None else fleet.count * fleet.chips_per_unit
    row |= {"units": fleet.count, "least_units": fleet.least, "chips_bought": chips}
    for way in WAYS:
        each = known.chip_day.get(way)
        row[f"{way}_usd_per_day"] = None if chips is None or each is None else chips * each
    days = [one if one < inf else None for one in known.paid_back_days or (inf, inf)]
    return row | {"paid_back_days_low": days[0], "paid_back_days_high": days[1]}


def _fleet(instance: Instance, own: Own, options: Options, rate: float) -> Sized:
    wanted = Wanted(rate, _positive(own, "peak"), int(own["spare"]))
    (found,) = size(
        instance.scenario, [instance.scenario.cluster], wanted,
        clock=Clock(options.time_limit_s), gap=options.gap, seed=options.seed,
    )  # fmt: skip
    return found


def _crossing(instance: Instance, own: Own, options: Options, known: Money) -> Row:
    """The least volume from which a fleet costs no more than the API: as many requests as pay for its units.

    ``k`` units cost as much as so many requests; the first ``k`` that carry these is the fleet.
    """
    way = str(own[_CROSSING])
    row: Row = {"price_sources": known.sources, "crossing_requests_per_s": None, "units": None}
    if way not in WAYS:
        raise InstanceError(
            Problem(_CROSSING, f"expected one of {', '.join(WAYS)}, got {way[:40]!r}")
        )
    each = known.chip_day.get(way)
    if each is None or known.request is None:
        return row
    per_unit = len(instance.cluster.chips) * each
    for units in range(1 + int(own["spare"]), _MOST_UNITS + 1):
        rate = units * per_unit / api_usd_per_day(1.0, known.request)
        fleet = _fleet(instance, own, options, rate)
        if fleet.count is not None and fleet.count <= units:
            return row | {
                "crossing_requests_per_s": rate, "units": units, "crossing_usd_per_day": units * per_unit,
            }  # fmt: skip
    return row


def _volumes(rows: Sequence[Row]) -> list[Row]:
    found = [
        row for row in solved(rows) if row.get(_CROSSING) is None and row.get(_RATE) is not None
    ]
    return sorted(found, key=lambda row: float(row[_RATE]))


def _chart(rows: Sequence[Row]) -> Chart:
    line = _volumes(rows)
    series: list[Series] = []
    for key, name in {**WAYS, "api": "API, list price"}.items():
        points = [
            (row[_RATE], row[f"{key}_usd_per_day"]) for row in line if row.get(f"{key}_usd_per_day")
        ]
        kind = name.partition(",")[0]
        if points and series and series[-1] == Series(f"{kind}, lowest price", points):
            series[-1] = Series(kind, points)  # one price alone is known: one line hid the other
        elif points:
            series.append(Series(name, points))
    return Chart(
        "Own, rent or call an API: cost per day against volume", "requests per second on average",
        "$ per day", series, log_x=True, log_y=True,
    )  # fmt: skip


def _conclude(rows: Sequence[Row]) -> list[str]:
    said = []
    for row in _volumes(rows):
        costs = {
            name: row[f"{key}_usd_per_day"]
            for key, name in {**WAYS, "api": "API at its list price"}.items()
            if row.get(f"{key}_usd_per_day")
        }
        listed = "; ".join(
            f"{name} ${usd:,.0f}" for name, usd in sorted(costs.items(), key=lambda c: c[1])
        )
        units = "no number of units that is solved" if row["units"] is None else (
            f"{counted(row['units'], 'unit')} ({row['chips_bought']:,} chips)"
        )  # fmt: skip
        said.append(
            f"At {row[_RATE]:g} requests/s, {units}; dollars per day: {listed or 'no price is known'}."
        )
    for row in solved(rows):
        if row.get(_CROSSING) is not None and row.get("crossing_requests_per_s") is not None:
            said.append(
                f"{WAYS[row[_CROSSING]].capitalize()}: {counted(row['units'], 'unit')} {_agreeing('cost', row)} as much as "
                f"the API at {row['crossing_requests_per_s']:.3g} requests/s (${row['crossing_usd_per_day']:,.0f} a day), "
                f"and {_agreeing('carry', row)} them; below that the API is the cheaper."
            )
    first = next(iter(_volumes(rows)), None)
    for end, words in (
        ("low", "the highest rent and the lowest price to buy"),
        ("high", "the lowest rent and the highest price to buy"),
    ):
        if first is not None and first[f"paid_back_days_{end}"] is not None:
            days = first[f"paid_back_days_{end}"]
            said.append(f"Buying costs as much as {days:,.0f} days of renting, at {words}.")
    said += [
        f"Prices: {text}." for text in dict.fromkeys(row["price_sources"] for row in solved(rows))
    ]
    return said


def _agreeing(verb: str, row: Row) -> str:
    """The verb as the number of units wants it."""
    return {"cost": "costs", "carry": "carries"}[verb] if row["units"] == 1 else verb


STUDY = Study(
    name="buy",
    question="Own, rent or call an API: what does a day cost at each volume, and where do the three cross?",
    default={
        "model": "deepseek-r1",
        "cluster": "gb200-nvl72",
        "workload": {"input_tokens": 3000, "output_tokens": 2000},
        "slo": {"ttft": 2.0, "tpot": 0.025},
    },
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
    parameters={
        _RATE: None, _CROSSING: None, "peak": 1.0, "spare": 0, "years": 4.0, "usd_per_kwh": _KWH,
        "owned_usd_per_chip": None, "rented_usd_per_chip_hour": None, "api_usd_per_request": None,
    },
    numbers=SIZED,
    answer=_answer,
    shown={
        "units": "units",
        "chips_bought": "chips",
        "owned_low_usd_per_day": "owned $/day, low",
        "owned_high_usd_per_day": "owned, high",
        "rented_low_usd_per_day": "rented, low",
        "rented_high_usd_per_day": "rented, high",
        "api_usd_per_day": "API $/day",
        "crossing_requests_per_s": "crosses at req/s",
    },
)  # fmt: skip
