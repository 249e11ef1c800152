"""A plan's question with other traffic, units or hours than its file says, and one made of an ordinary scenario."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from costmodel.plan.hours import HOUR_S
from costmodel.plan.question import (
    MOST_HOURS,
    MOST_UNITS,
    PlanModel,
    PlanQuestion,
    PlanUnits,
    load_plan,
    rates_of,
)
from costmodel.question.scenario import Scenario, load_scenario
from costmodel.question.traffic.load import load_traffic
from topology import load_cluster
from topology.catalogue import catalogue_names, checked, read_data, resolve
from topology.errors import InstanceError, Problem, option

#: chips of one kind that may be bought, unless a question says otherwise
MOST_CHIPS = 4608
#: an hour is planned for the highest rate of so many equal parts of it
_PARTS = 6
#: keys of a scenario that a plan takes, or that say nothing of the answer
_TAKEN = {
    "name", "description", "model", "cluster", "workload", "slo", "weight_dtype", "kv_dtype", "speculative", "engine", "rate",
    "pay",
}  # fmt: skip
#: hours of a rate that does not change
_DAY = 24


def plan_question(
    name_or_path: str,
    *,
    traffic: str | None = None,
    buy: Sequence[str] = (),
    hours: int | None = None,
) -> PlanQuestion:
    """The question of a plan's file or of an ordinary scenario's.

    Parameters
    ----------
    traffic
        Requests over time of the only model; of a scenario their rates by hour are planned for, too.
    buy
        Cluster names of one unit each, without a count: these kinds may be bought, those of a plan's file with its
        numbers and prices, that of a scenario with the number in its name, others up to :data:`MOST_CHIPS` chips at what their chips cost.
    hours
        The first so many hours.

    Raises
    ------
    InstanceError
        The file, or what does not fit it.
    """
    if hours is not None and not 1 <= hours <= MOST_HOURS:
        raise InstanceError(Problem(option("hours"), f"expected 1 to {MOST_HOURS}, got {hours}"))
    numbered = True
    if _is_plan(name_or_path):
        asked = _with_traffic(load_plan(name_or_path), traffic)
    else:
        scenario = load_scenario(name_or_path)
        # a scenario's cluster without a number is a kind, not the only unit of it that there is
        numbered = _counted(scenario.cluster)[1] is not None
        asked = _of_scenario(scenario, traffic, hours)
    if buy:
        own = {one.cluster: one for one in asked.units} if numbered else {}
        units = tuple(own.get(kind, _bought(kind)) for kind in dict.fromkeys(buy))
        asked = asked.model_copy(update={"units": units})
    return asked if hours is None else _first(asked, hours)


def _is_plan(name_or_path: str) -> bool:
    if name_or_path in catalogue_names("scenarios"):
        return False
    data = read_data(resolve(name_or_path, "plans"))
    return not isinstance(data, dict) or "units" in data or "model" not in data


def _with_traffic(asked: PlanQuestion, traffic: str | None) -> PlanQuestion:
    if traffic is None:
        return asked
    if len(asked.models) > 1:
        message = f"{asked.name} has {len(asked.models)} models: say in the file whose it is"
        raise InstanceError(Problem(option("traffic"), message))
    with checked(option("traffic")):
        whole = asked.models[0].model_dump(exclude_unset=True) | {"traffic": traffic}
        return asked.model_copy(update={"models": (PlanModel.model_validate(whole),)})


def _of_scenario(scenario: Scenario, traffic: str | None, hours: int | None) -> PlanQuestion:
    """One model, whose rates by hour are those of its traffic, or the scenario's rate in every hour."""
    if problems := [
        Problem(f"scenario: {name}", "is not planned with: leave it out")
        for name, field in Scenario.model_fields.items()
        if name not in _TAKEN
        and getattr(scenario, name) != field.get_default(call_default_factory=True)
    ]:
        raise InstanceError(problems)
    if traffic is None and scenario.rate is None:
        message = (
            f"a scenario has no requests by hour: give {option('traffic')}, or rate in the scenario"
        )
        raise InstanceError(Problem("scenario", message))
    rates = (scenario.rate or 0.0,) * (hours or _DAY)
    if traffic is not None:
        rates = hourly(traffic, hours)
    kind, count = _counted(scenario.cluster)
    number = count or 1
    with checked("scenario"):
        model = PlanModel(
            model=scenario.model, workload=scenario.workload, traffic=traffic, slo=scenario.slo,
            weight_dtype=scenario.weight_dtype, kv_dtype=scenario.kv_dtype, engine=scenario.engine,
            speculative=scenario.speculative, requests_per_s=rates,
        )  # fmt: skip
        units = PlanUnits(cluster=kind, count=number, reserved=(0, number))
        return PlanQuestion(name="scenario", models=(model,), units=(units,))


def _counted(cluster: str) -> tuple[str, int | None]:
    """A kind of unit and the number after its ``@``."""
    kind, _, count = cluster.rpartition("@")
    return (kind, int(count)) if kind and count.isdecimal() else (cluster, None)


def hourly(traffic: str, hours: int | None = None) -> tuple[float, ...]:
    """Requests per second of each hour, the highest of its six parts; a last hour that is not whole counts as far as it goes.

    Raises ``InstanceError`` where the traffic does not last so many hours.
    """
    requests = load_traffic(traffic)
    arrival_s = requests.arrival_s - requests.arrival_s[0]
    lasts_s = float(arrival_s[-1])
    if not lasts_s:
        raise InstanceError(Problem(traffic, "all requests come at once: they have no rate"))
    most = max(1, ceil(lasts_s / HOUR_S))
    if hours is not None and hours > most:
        message = f"{traffic} lasts {lasts_s / HOUR_S:.3g} h, {hours} h are asked for"
        raise InstanceError(Problem(option("hours"), message))
    part_s = HOUR_S / _PARTS
    counts = np.bincount((arrival_s / part_s).astype(np.int64))
    ends_s = np.minimum((np.arange(len(counts)) + 1) * part_s, lasts_s)
    within_s = ends_s - np.arange(len(counts)) * part_s
    # a rest of a part says nothing of a rate, unless it is all there is
    whole = (within_s >= part_s / 2) | (len(counts) == 1)
    rates = np.where(whole, counts / np.maximum(within_s, 1e-9), 0.0)
    number = min(hours or most, MOST_HOURS)
    return tuple(float(rates[h * _PARTS : (h + 1) * _PARTS].max()) for h in range(number))


def _bought(kind: str) -> PlanUnits:
    """As many units of a kind as make the largest cluster, each bought only if it is used."""
    if "@" in kind:
        raise InstanceError(Problem(option("buy"), f"{kind}: name one unit, without a count"))
    most = min(MOST_UNITS, max(1, MOST_CHIPS // len(load_cluster(kind).chips)))
    return PlanUnits(cluster=kind, count=most, reserved=(0, most))


def _first(asked: PlanQuestion, hours: int) -> PlanQuestion:
    """The first hours of a question."""
    rates = rates_of(asked)
    if not 1 <= hours <= len(rates[0]):
        message = f"expected 1 to {len(rates[0])}, as many as {asked.name} has, got {hours}"
        raise InstanceError(Problem(option("hours"), message))
    models = tuple(
        one.model_copy(
            update={"rates": None, "requests_per_s": tuple(peak for _, peak in own[:hours])}
        )
        for one, own in zip(asked.models, rates, strict=True)
    )
    units = tuple(
        one.model_copy(update={"on_demand_usd_per_hour": one.on_demand_usd_per_hour[:hours]})
        if isinstance(one.on_demand_usd_per_hour, tuple)
        else one
        for one in asked.units
    )
    changed: dict[str, object] = {"models": models, "units": units}
    if isinstance(asked.usd_per_kwh, tuple):
        changed["usd_per_kwh"] = asked.usd_per_kwh[:hours]
    return asked.model_copy(update=changed)
