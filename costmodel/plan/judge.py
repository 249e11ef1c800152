"""The judge of plans: what a plan costs, and every rule that it breaks. Never sees the solver."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.plan.hours import Decision, Hours
from costmodel.tolerance import exceeds
from topology.quantity import figure


@dataclass(frozen=True)
class JudgedHour:
    """One hour: units by kind that serve, that load or finish, that are rented on demand; money."""

    serving: tuple[int, ...]
    moving: tuple[int, ...]
    on_demand: tuple[int, ...]
    power_w: float
    usd: float


@dataclass(frozen=True)
class Judged:
    """A plan by the judge; it is valid where ``violations`` is empty."""

    hours: tuple[JudgedHour, ...]
    violations: tuple[str, ...]

    @property
    def usd(self) -> float:
        """Money of all hours."""
        return sum(hour.usd for hour in self.hours)


def started(plan: Decision, hour: int, column: int) -> int:
    """Groups that begin to serve with an hour."""
    return max(0, _serve(plan, hour, column) - _serve(plan, hour - 1, column))


def stopped(plan: Decision, hour: int, column: int) -> int:
    """Groups that served until an hour begins."""
    return max(0, _serve(plan, hour - 1, column) - _serve(plan, hour, column))


def judge(asked: Hours, plan: Decision) -> Judged:
    """Price a plan and check it, hour by hour."""
    broken = _reserved(asked, plan)
    hours = []
    for hour in range(asked.hours):
        one = _hour(asked, plan, hour)
        hours.append(one)
        for kind, own in enumerate(asked.kinds):
            used = one.serving[kind] + one.moving[kind]
            if used > own.units:
                broken.append(f"hour {hour}: {used} units of {own.name} in use, {own.units} exist")
        if asked.power_cap_w is not None and exceeds(one.power_w, asked.power_cap_w):
            broken.append(
                f"hour {hour}: {one.power_w:,.0f} W, the limit is {asked.power_cap_w:,.0f} W"
            )
        broken += [
            f"hour {hour}: {name} is left with {figure(left, 6)} requests/s after a loss, asked are {figure(wanted, 6)}"
            for name, left, wanted in _short(asked, plan, hour)
        ]
        broken += _too_short(asked, plan, hour)
        broken += _parted(asked, plan, hour)
    return Judged(tuple(hours), tuple(broken))


def _serve(plan: Decision, hour: int, column: int) -> int:
    return plan.groups[hour % len(plan.groups)][column]


def _reserved(asked: Hours, plan: Decision) -> list[str]:
    return [
        f"{kind.name}: {number} units reserved, expected {kind.reserved[0]} to {kind.reserved[1]}"
        for kind, number in zip(asked.kinds, plan.reserved, strict=True)
        if not kind.reserved[0] <= number <= kind.reserved[1]
    ]


def _hour(asked: Hours, plan: Decision, hour: int) -> JudgedHour:
    serving, moving, rented = [], [], []
    power = usd = 0.0
    for index, kind in enumerate(asked.kinds):
        own = asked.of_kind[index]
        serve = sum(_serve(plan, hour, c) * asked.columns[c].group for c in own)
        load = drain = 0
        for c in own:
            column = asked.columns[c]
            for ahead in range(1, column.loading_hours + 1):
                load += started(plan, hour + ahead, c) * column.group
            for behind in range(column.draining_hours):
                drain += stopped(plan, hour - behind, c) * column.group
        move = max(load, drain) if asked.exchanges[index] else load + drain
        used = serve + move
        more = max(0, used - plan.reserved[index])
        serving.append(serve)
        moving.append(move)
        rented.append(more)
        power += used * kind.power_w
        usd += plan.reserved[index] * kind.reserved_usd_per_hour
        usd += more * kind.on_demand_usd_per_hour[hour] + used * asked.energy_usd(index, hour)
    return JudgedHour(tuple(serving), tuple(moving), tuple(rented), power, usd)


def _short(asked: Hours, plan: Decision, hour: int) -> list[tuple[str, float, float]]:
    """Models that too little is left for, after the worst loss: name, what is left, what is asked."""
    found = []
    for model, name in enumerate(asked.models):
        columns = asked.of_model[model]
        wanted = asked.demand[model][hour]
        left = min(
            sum(asked.columns[c].left(_serve(plan, hour, c), lost[c]) for c in columns)
            for lost in asked.losses[model]
        )
        if exceeds(wanted, left):
            found.append((name, left, wanted))
    return found


def _too_short(asked: Hours, plan: Decision, hour: int) -> list[str]:
    """Groups that stop before their least hours are over."""
    found = []
    for index, column in enumerate(asked.columns):
        recent = sum(started(plan, hour - back, index) for back in range(column.least_hours))
        if recent > _serve(plan, hour, index):
            found.append(
                f"hour {hour}: {column.name} stops within {column.least_hours} hours of its start"
            )
    return found


def _parted(asked: Hours, plan: Decision, hour: int) -> list[str]:
    """Columns that run on the same units, of which unlike numbers of groups serve."""
    found = []
    for own in asked.together:
        served = [_serve(plan, hour, c) for c in own]
        if len(set(served)) > 1:
            told = ", ".join(
                f"{groups} of {asked.columns[c].name}"
                for c, groups in zip(own, served, strict=True)
            )
            found.append(f"hour {hour}: groups on the same units serve together, but {told} do")
    return found
