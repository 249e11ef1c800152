"""A plan's question as a person writes it: models with their requests by hour, units to pay, prices, losses."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from costmodel.plan.hours import HOUR_S
from costmodel.question.choices.options import Dtype
from costmodel.question.engine_files import EngineName
from costmodel.question.scenario import Scenario, beside_file
from costmodel.question.speculation import Speculative
from costmodel.question.traffic.table import cells_of, header_of, row_of, text_lines
from costmodel.question.traffic.trace import seconds
from costmodel.question.workload import Slo, Workload
from topology import TierKind, load_cluster
from topology.catalogue import beside, catalogue_names, checked, read_data, resolve
from topology.errors import InstanceError, Problem
from topology.names import Line, Name, Prose, shown
from topology.quantity import Seconds, UsdPerHour, Watts, is_number

#: the longest stretch of hours, a month, and the most units of one kind
MOST_HOURS, MOST_UNITS = 744, 1000
#: units that may be lost at once, at most, and chips
MOST_SPARE, MOST_SPARE_CHIPS = 3, 100_000
_COLUMNS = ("t_s", "requests_per_s")

#: requests per second of the highest hour from which on a plan has a price per token that can be read
LEAST_PEAK = 1e-6
Rate = Annotated[float, Field(ge=0, le=1e9)]
Price = Annotated[float, Field(ge=0, le=1e6)]
Units = Annotated[int, Field(ge=0, le=MOST_UNITS)]


def _named_or_in_place(value: object) -> str:
    return "<in place>" if isinstance(value, dict | Workload) else "<name>"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlanModel(_Part):
    """One model: its requests, and requests per second by hour.

    Without ``traffic`` every request has the workload's lengths, and targets hold in a steady state. ``traffic``: requests of
    unlike lengths as a trace or a description; targets are then 99th percentiles, judged by replays.
    ``requests_per_s`` has one rate per hour, or ``rates`` names a CSV of ``t_s,requests_per_s``, each rate until the next
    row: an hour is planned for its highest.
    """

    model: Line
    name: Name | None = None
    workload: Annotated[
        Annotated[Line, Tag("<name>")] | Annotated[Workload, Tag("<in place>")],
        Discriminator(_named_or_in_place),
    ] = "chat"
    traffic: Line | None = None
    slo: Slo = Slo()
    weight_dtype: Dtype | None = None
    kv_dtype: Dtype | None = None
    speculative: Speculative | None = None
    engine: EngineName | None = None
    requests_per_s: (
        Annotated[tuple[Rate, ...], Field(min_length=1, max_length=MOST_HOURS)] | None
    ) = None
    rates: Line | None = None

    @property
    def called(self) -> str:
        """What the model is called in the plan."""
        return self.name or Path(self.model).name.removesuffix(".json")

    @model_validator(mode="after")
    def _one_way(self) -> PlanModel:
        if (self.requests_per_s is None) == (self.rates is None):
            raise ValueError("give either requests_per_s or rates")
        if self.traffic is not None and self.slo.ttft is None and self.slo.tpot is None:
            raise ValueError("traffic has no target: give slo.ttft or slo.tpot")
        return self

    def scenario(self, cluster: str, failed: tuple[str, ...]) -> Scenario:
        """The steady question of this model on a cluster."""
        return Scenario(
            model=self.model, cluster=cluster, workload=self.workload, slo=self.slo, failed=failed,
            weight_dtype=self.weight_dtype, kv_dtype=self.kv_dtype, engine=self.engine,
            speculative=self.speculative,
        )  # fmt: skip


class PlanUnits(_Part):
    """Units of one kind in one place: ``cluster`` is one of them, ``count`` how many there are at most.

    ``name`` tells two places with the same units apart: groups of units that work together stand in one of them.

    ``reserved``: how many are paid in every hour, or the least and the most of which the plan chooses; others are rented
    by the hour. A unit costs what its chips cost unless ``usd_per_hour`` (reserved) and ``on_demand_usd_per_hour``
    (one price, or one per hour) say another. ``power_cap`` of one unit leaves chips off.
    """

    cluster: Line
    name: Name | None = None
    count: Annotated[int, Field(ge=1, le=MOST_UNITS)]
    reserved: Units | tuple[Units, Units] = 0
    usd_per_hour: UsdPerHour | None = None
    on_demand_usd_per_hour: (
        UsdPerHour | Annotated[tuple[UsdPerHour, ...], Field(max_length=MOST_HOURS)] | None
    ) = None
    power_cap: Watts | None = None

    @property
    def called(self) -> str:
        """What the units are called in the plan."""
        return self.name or self.cluster

    @property
    def reserved_range(self) -> tuple[int, int]:
        """Least and most reserved units."""
        own = self.reserved
        return own if isinstance(own, tuple) else (own, own)

    @model_validator(mode="after")
    def _check(self) -> PlanUnits:
        least, most = self.reserved_range
        if not least <= most <= self.count:
            raise ValueError(f"reserved: expected 0 to {self.count} units, got {least} to {most}")
        if "@" in self.cluster:
            raise ValueError("cluster: name one unit; count says how many")
        return self


class PlanQuestion(_Part):
    """Models, units, and what holds in every hour; hours repeat.

    ``spare`` units may be lost at any time, or as many as hold ``spare_chips``. ``usd_per_kwh`` (one price, or one per hour) is paid for the rated power of units
    in use times ``power_overhead``, which ``power_cap`` bounds. A unit loads weights from ``load_from`` (flash unless
    told, the host's memory where chips have none) and ``load_extra`` longer before it serves, and serves one model for at
    least ``least_hours``. ``share``: whether models may share a unit in an hour; left out, where few units exist and no model has traffic.
    """

    name: Name
    title: Line = ""
    models: Annotated[tuple[PlanModel, ...], Field(min_length=1, max_length=50)]
    units: Annotated[tuple[PlanUnits, ...], Field(min_length=1, max_length=200)]
    spare: Annotated[int, Field(ge=0, le=MOST_SPARE)] = 0
    spare_chips: Annotated[int, Field(ge=0, le=MOST_SPARE_CHIPS)] = 0
    usd_per_kwh: Price | Annotated[tuple[Price, ...], Field(max_length=MOST_HOURS)] = 0.0
    power_overhead: Annotated[float, Field(ge=1, le=5)] = 1.3
    power_cap: Watts | None = None
    load_from: TierKind | None = None
    load_extra: Seconds = 0.0
    least_hours: Annotated[int, Field(ge=1, le=MOST_HOURS)] = 1
    share: bool | None = None
    licence: Line = ""
    sources: tuple[Prose, ...] = ()
    notes: tuple[Prose, ...] = ()

    @model_validator(mode="after")
    def _apart(self) -> PlanQuestion:
        if self.spare and self.spare_chips:
            raise ValueError("spare and spare_chips say both what may be lost: give one of them")
        for what, names in (
            ("models", [one.called for one in self.models]),
            ("units", [one.called for one in self.units]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{what}: {twice[0]!r} is there twice")
        return self


def lost_of(asked: PlanQuestion, place: str = "spare_chips") -> tuple[int, list[int]]:
    """What may be lost, and how much of it a unit of each kind holds: 1, or its chips where kinds of as many units hold unlike numbers.

    Raises ``InstanceError`` where it may be more than :data:`MOST_SPARE` units.
    """
    one_each = [1] * len(asked.units)
    if not asked.spare_chips:
        return asked.spare, one_each
    sizes = [len(load_cluster(units.cluster).chips) for units in asked.units]
    least, most = (ceil(asked.spare_chips / size) for size in (max(sizes), min(sizes)))
    if most > MOST_SPARE:
        named = asked.units[sizes.index(min(sizes))].cluster
        message = f"{asked.spare_chips} chips are {most} units of {named}; at most {MOST_SPARE} are planned for"
        raise InstanceError(Problem(place, message))
    return (most, one_each) if least == most else (asked.spare_chips, sizes)


def load_plan(name_or_path: str) -> PlanQuestion:
    """The question of a catalogue name or of a YAML or JSON file. Raises ``InstanceError``."""
    path = resolve(name_or_path, "plans")
    with checked(path.name):
        asked = PlanQuestion.model_validate(read_data(path))
    models = tuple(
        beside_file(one, path, "model", "workload", "traffic", "rates").model_copy(
            update={"name": one.called}
        )
        for one in asked.models
    )
    units = tuple(
        one.model_copy(update={"cluster": beside(path, one.cluster)}) for one in asked.units
    )
    return asked.model_copy(update={"models": models, "units": units})


def plan_names() -> list[str]:
    """Sorted names of the shipped plans."""
    return catalogue_names("plans")


def rates_of(asked: PlanQuestion) -> list[tuple[tuple[float, float], ...]]:
    """Mean and highest requests/s of each hour, by model.

    Raises ``InstanceError`` where hours of two models, or of a list of prices, do not agree.
    """
    found = [
        tuple((rate, rate) for rate in one.requests_per_s)
        if one.requests_per_s is not None
        else _read_rates(Path(one.rates or ""))
        for one in asked.models
    ]
    number = max(len(own) for own in found)
    lengths = {f"models[{i}]": len(own) for i, own in enumerate(found)}
    for i, unit in enumerate(asked.units):
        if isinstance(unit.on_demand_usd_per_hour, tuple):
            place = f"units[{i}].on_demand_usd_per_hour"
            lengths[place] = len(unit.on_demand_usd_per_hour)
    if isinstance(asked.usd_per_kwh, tuple):
        lengths["usd_per_kwh"] = len(asked.usd_per_kwh)
    problems = [
        Problem(f"{asked.name}: {place}", f"has {length} hours, expected {number}")
        for place, length in lengths.items()
        if length != number
    ]
    if asked.least_hours > number:
        place = f"{asked.name}: least_hours"
        problems.append(Problem(place, f"must be at most {number}, got {asked.least_hours}"))
    most = max(peak for own in found for _, peak in own)
    if most < LEAST_PEAK:
        told = f"a rate of at least {LEAST_PEAK:.6f} requests per second in some hour, got {most:g} at most"
        problems.append(
            Problem(f"{asked.name}: models", f"ask for no request to speak of: expected {told}")
        )
    if problems:
        raise InstanceError(problems)
    return found


def _read_rates(path: Path) -> tuple[tuple[float, float], ...]:
    """Mean and highest rate by hour of a CSV of rates that each hold until the next row."""
    lines = text_lines(path)
    header = header_of(next(lines, ""), _COLUMNS, _COLUMNS, f"{shown(path)}:1")
    times: list[float] = []
    rates: list[float] = []
    for line, cells in cells_of(lines, path, 1):
        place = f"{shown(path)}:{line}"
        row = row_of(cells, header, place)
        at, rate = seconds(row["t_s"], place), _rate(row["requests_per_s"], place)
        if times and at <= times[-1]:
            message = f"t_s {at:g} comes after {times[-1]:g}: sort the rows by time"
            raise InstanceError(Problem(place, message))
        if not times and at:
            raise InstanceError(Problem(place, f"t_s: expected 0 in the first row, got {at:g}"))
        if at >= MOST_HOURS * HOUR_S:
            message = f"t_s: expected at most {MOST_HOURS} hours, got {at:g} s"
            raise InstanceError(Problem(place, message))
        times.append(at)
        rates.append(rate)
    if len(times) < 2:
        raise InstanceError(Problem(shown(path), "expected two rows or more"))
    ends = [*times[1:], 2 * times[-1] - times[-2]]
    number = min(MOST_HOURS, ceil(ends[-1] / HOUR_S - 1e-9))
    served, highest = [0.0] * number, [0.0] * number
    for begin, end, rate in zip(times, ends, rates, strict=True):
        for hour in range(int(begin / HOUR_S), min(number, ceil(end / HOUR_S))):
            within = min(end, (hour + 1) * HOUR_S) - max(begin, hour * HOUR_S)
            if within > 0:
                served[hour] += rate * within
                highest[hour] = max(highest[hour], rate)
    return tuple((own / HOUR_S, most) for own, most in zip(served, highest, strict=True))


def _rate(text: str, place: str) -> float:
    """A cell of ``requests_per_s``. Raises ``InstanceError``."""
    value = float(text) if is_number(text) else float("nan")
    if not 0 <= value <= 1e9:
        message = f"requests_per_s: expected a rate from 0 to 1e9, got {text!r:.40}"
        raise InstanceError(Problem(place, message))
    return value
