"""A plan as one JSON document."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from rackfit.documents.result import SCHEMA_VERSION, layout_dict
from solver.plan.confirm import Confirmed
from solver.plan.day import DayPlan


def plan_document(found: DayPlan, seed: int, confirmed: Confirmed | None = None) -> dict[str, Any]:
    """What ``rackfit plan --json`` prints. ``confirmed``: the same plan with its replays."""
    return {
        "schema_version": SCHEMA_VERSION,
        "status": "optimal" if found.proven else "feasible",
        "name": found.asked.name,
        "buy": _buy(found),
        "hours": [hour_document(found, hour) for hour in range(found.hours.hours)],
        "columns": _columns(found),
        "left_out": left_out(found),
        "usd_per_day": usd_per_day(found, found.planned.judged.usd),
        "usd_per_m_output_tokens": usd_per_m_output_tokens(found),
        "bound_usd_per_day": usd_per_day(found, found.bound_usd),
        "gap": _known(found.gap),
        "of_these_layouts": {
            "bound_usd_per_day": usd_per_day(found, found.planned.bound_usd),
            "gap": _known(found.planned.gap),
        },
        "covers": list(found.space.covers),
        "survives": _survives(found),
        "replays": [asdict(one) for one in confirmed.replays] if confirmed else [],
        "confirmed": _confirmed(found, confirmed),
        "seed": seed,
        "wall_s": found.wall_s,
    }


def _survives(found: DayPlan) -> dict[str, int | str]:
    """What may be lost: so many units, or as many as hold so many chips."""
    asked = found.asked
    if found.hours.units_lost[0] == found.hours.units_lost[1]:
        return {"units": found.hours.units_lost[0], "of": "any kind, in any hour"}
    return {"chips": asked.spare_chips, "of": "any units that hold them, in any hour"}


def _confirmed(found: DayPlan, confirmed: Confirmed | None) -> dict[str, Any] | None:
    """What replays took off the plan; ``None`` where nothing was replayed."""
    if confirmed is None:
        return None
    return {
        "all_meet": confirmed.missed == confirmed.unknown == 0,
        "missed": confirmed.missed,
        "not_replayed": confirmed.unknown,
        "reason": confirmed.reason,
        "cuts": [asdict(one) for one in confirmed.cuts],
        "usd_per_day_before": usd_per_day(found, confirmed.first_usd),
    }


def _known(gap: float) -> float | None:
    """A gap; ``None`` where the time was over before a bound."""
    return gap if isfinite(gap) else None


def usd_per_day(found: DayPlan, usd: float) -> float:
    """Money of all hours, per day."""
    return usd / found.hours.hours * 24.0


def unit_hours_per_day(found: DayPlan, rented: Sequence[int]) -> float:
    """Hours of units that are rented by the hour, per day as money is; ``rented``: units in each hour."""
    return sum(rented) / found.hours.hours * 24.0


def usd_per_m_output_tokens(found: DayPlan) -> float:
    """Money of all hours over the tokens of all answers."""
    return found.planned.judged.usd / found.output_tokens * 1e6


def _buy(found: DayPlan) -> list[dict[str, Any]]:
    """By kind: reserved units, the most that are rented beyond them in any hour, money per day of both."""
    listed = []
    for index, kind in enumerate(found.hours.kinds):
        judged = found.planned.judged.hours
        rented = [hour.on_demand[index] for hour in judged]
        reserved = found.planned.plan.reserved[index]
        prices = zip(rented, kind.on_demand_usd_per_hour, strict=True)
        listed.append(
            {
                "unit": kind.name,
                "count": reserved,
                "usd": usd_per_day(found, len(judged) * reserved * kind.reserved_usd_per_hour),
                "on_demand_most": max(rented),
                "on_demand_unit_hours": unit_hours_per_day(found, rented),
                "on_demand_usd": usd_per_day(found, sum(n * price for n, price in prices)),
            }
        )
    return listed


def hour_document(found: DayPlan, hour: int) -> dict[str, Any]:
    """One hour: rates, units by model and kind, units that serve nobody, power and money."""
    asked, plan = found.hours, found.planned.plan
    judged = found.planned.judged.hours[hour]
    fleet: dict[str, dict[str, int]] = {name: {} for name in asked.models}
    shared: dict[str, dict[str, int]] = {name: {} for name in asked.models}
    layouts = []
    for index, (column, groups) in enumerate(zip(asked.columns, plan.groups[hour], strict=True)):
        if groups:
            if (index, groups) in found.stood:
                layouts.append(_file(found, index, groups))
            own = fleet[asked.models[column.model]]
            kind = asked.kinds[column.kind].name
            own[kind] = own.get(kind, 0) + groups * column.stands_on
            if column.shared:
                parted = shared[asked.models[column.model]]
                parted[kind] = parted.get(kind, 0) + groups
    idle = {
        kind.name: max(0, reserved - serving - moving)
        for kind, reserved, serving, moving in zip(
            asked.kinds, plan.reserved, judged.serving, judged.moving, strict=True
        )
    }
    moving = {kind.name: n for kind, n in zip(asked.kinds, judged.moving, strict=True)}
    return {
        "hour": hour,
        "requests_per_s": {
            name: own[hour] for name, own in zip(asked.models, asked.demand, strict=True)
        },
        "mean_requests_per_s": {
            name: own[hour] for name, own in zip(asked.models, found.mean, strict=True)
        },
        "fleet_by_model": fleet,
        "shared_by_model": shared,
        "standing_by": {name: idle[name] + moving[name] for name in idle},
        "loading_or_finishing": moving,
        "on_demand": {kind.name: n for kind, n in zip(asked.kinds, judged.on_demand, strict=True)},
        "layouts": layouts,
        "power_w": judged.power_w,
        "usd": judged.usd,
    }


def layout_files(found: DayPlan) -> dict[str, str]:
    """The layouts of all hours as documents that ``rackfit evaluate`` and ``rackfit replay`` read, by file name."""
    files = {}
    for (column, groups), (instance, layout, evaluation) in found.stood.items():
        document = {
            "schema_version": SCHEMA_VERSION,
            "status": "feasible",
            "instance": instance.describe(),
            "evaluation": evaluation.as_dict(),
            "layout": layout_dict(layout),
        }
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        files[_file(found, column, groups)] = text
    return files


def _file(found: DayPlan, column: int, groups: int) -> str:
    own = found.hours.columns[column]
    kind = found.hours.kinds[own.kind].name.rpartition("/")[2]
    name = f"{column}-{found.hours.models[own.model]}-on-{groups * own.stands_on}-{kind}"
    return f"layouts/{re.sub(r'[^A-Za-z0-9._-]', '-', name)[:200]}.json"


def _columns(found: DayPlan) -> list[dict[str, Any]]:
    """What a group of units runs for a model, and what it carries."""
    return [
        {
            "name": column.name,
            "model": found.hours.models[column.model],
            "unit": found.hours.kinds[column.kind].name,
            "units": one.units if column.shared else column.group,
            "shared": column.shared,
            "requests_per_s": one.requests_per_s,
            "steady_requests_per_s": one.steady_requests_per_s,
            "requests_per_s_after_loss": one.left_requests_per_s,
            "most_requests_per_s": one.units
            * found.offers[column.model, column.kind].most_requests_per_s,
            "start_s": column.start_s,
            "drain_s": column.drain_s,
        }
        for column, one in zip(found.hours.columns, found.layouts, strict=True)
    ]


def left_out(found: DayPlan) -> list[dict[str, str]]:
    """Kinds of units on which a model has no layout, with the reason."""
    return [
        {"model": model, "unit": kind.name, "reason": found.offers[m, k].why}
        for m, model in enumerate(found.hours.models)
        for k, kind in enumerate(found.hours.kinds)
        if not found.offers[m, k].layouts
    ]
