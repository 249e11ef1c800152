r"""Units through the hours of a day (CP-SAT): which groups serve which model when, and how many units are reserved.

    n[h, j]     groups of column j that serve in hour h
    s, e[h, j]  groups that start with hour h, and that stopped with it:   n[h] - n[h-1] = s[h] - e[h]
    t[h, k]     units of kind k that load or finish in hour h
    b[h, k]     units in use:  sum_j g_j n[h, j] + t[h, k]  <=  units_k
    r[k], o     units reserved, and rented beyond them:  o[h, k] >= b[h, k] - r[k]

Each hour serves its demand after every loss, ``sum_j C_j(n[h, j] - lost_j) >= d[h]``; hours repeat. Rates and power are
counted so finely that sums equal to a limit meet it, and what meets it here meets it within the judge's rounding band;
money is rounded down, so that the bound holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ortools.sat.python import cp_model

from costmodel.plan.hours import Column, Decision, Hours
from costmodel.plan.judge import Judged, judge
from costmodel.tolerance import RELATIVE
from solver.clock import Clock
from solver.scaling import down, fine_unit
from solver.verify import ROUNDING
from topology.errors import NoFeasibleLayout, NoLayoutInTime, VerificationError

#: seconds of one solve at most, and of looking for a plan as cheap with fewer starts
_LIMIT_S, _TIDY_S = 240.0, 10.0
#: sums and limits so close, relatively, are equal: half the judge's own band
_BAND = RELATIVE / 2


@dataclass(frozen=True)
class Planned:
    """A plan with the judge's word on it; no plan of these columns costs less than ``bound_usd``."""

    plan: Decision
    judged: Judged
    bound_usd: float

    @property
    def gap(self) -> float:
        """Money over the bound, less 1."""
        return _gap(self.judged.usd, self.bound_usd)


def plan_hours(asked: Hours, *, clock: Clock, seed: int = 0, gap: float = 0.0) -> Planned:
    """The cheapest plan found, with a proven bound over all plans of the same columns.

    Raises
    ------
    NoFeasibleLayout
        No plan meets the demand; the message names the first hour that cannot be met alone, or says that the
        changes between hours are what cannot be.
    NoLayoutInTime
        The time limit came first.
    """
    model = _Model(asked)
    solver, status = clock.run(
        model.cp, seed=seed, limit_s=_LIMIT_S, linearize=True, accept_gap=gap
    )
    if status == cp_model.INFEASIBLE:
        raise NoFeasibleLayout(_why(asked, clock, seed))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise NoLayoutInTime("the time limit came before a plan")
    bound, claimed = (
        own * model.usd for own in (solver.best_objective_bound, solver.objective_value)
    )
    model.settle(round(solver.objective_value), solver)
    tidy, status = clock.run(model.cp, seed=seed, limit_s=_TIDY_S)
    plan = model.read(tidy if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else solver)
    judged = judge(asked, plan)
    if judged.violations:
        raise VerificationError(f"the judge rejects the plan: {'; '.join(judged.violations[:3])}")
    if judged.usd > claimed * (1 + ROUNDING) + model.rounding_usd:
        raise VerificationError(
            f"the judge finds ${judged.usd:,.4f} for a plan, the solver claimed ${claimed:,.4f}"
        )
    return Planned(plan, judged, max(0.0, min(bound, judged.usd)))


def bound_usd(
    asked: Hours, most: Sequence[Sequence[float]], *, clock: Clock, seed: int = 0
) -> float:
    """Money of any plan whose unit of kind ``k`` carries at most ``most[model][k]`` requests/s, at least.

    Units that load or finish and least hours are left out; a unit runs one model in an hour.
    Raises ``NoFeasibleLayout`` where even so much does not meet the demand.
    """
    columns = tuple(
        Column(
            f"{name} on {kind.name}",
            m,
            k,
            1,
            tuple(n * most[m][k] for n in range(kind.units + 1)),
        )
        for m, name in enumerate(asked.models)
        for k, kind in enumerate(asked.kinds)
        if most[m][k] > 0
    )
    model = _Model(replace(asked, columns=columns))
    solver, status = clock.run(model.cp, seed=seed, limit_s=_LIMIT_S, linearize=True)
    if status == cp_model.INFEASIBLE:
        raise NoFeasibleLayout(
            "no plan meets the demand: even what units carry at most is too little"
        )
    return max(0.0, solver.best_objective_bound * model.usd)


class _Model:
    """The variables and rules of one question."""

    def __init__(self, asked: Hours) -> None:
        self.asked, self.cp = asked, cp_model.CpModel()
        hours, columns = range(asked.hours), asked.columns
        self.reserved = [
            self.cp.new_int_var(*kind.reserved, f"reserved[{kind.name}]") for kind in asked.kinds
        ]
        self.most = [len(one.requests_per_s) - 1 for one in columns]
        self.serve = self._table("serve")
        self.start = self._table("start")
        self.stop = self._table("stop")
        self._used = [[self._used_in(hour, k) for k in range(len(asked.kinds))] for hour in hours]
        for hour in hours:
            self._changes(hour)
            self._demand(hour)
            self._power(hour)
        self._money()

    def _table(self, name: str) -> list[list[cp_model.IntVar]]:
        return [
            [
                self.cp.new_int_var(0, most, f"{name}[{hour},{one.name}]")
                for one, most in zip(self.asked.columns, self.most, strict=True)
            ]
            for hour in range(self.asked.hours)
        ]

    def _used_in(self, hour: int, kind: int) -> cp_model.IntVar:
        """Units of a kind in use in an hour."""
        asked, number = self.asked, self.asked.hours
        own = asked.of_kind[kind]
        load: list[cp_model.LinearExpr] = []
        drain: list[cp_model.LinearExpr] = []
        for index in own:
            column = asked.columns[index]
            for ahead in range(1, column.loading_hours + 1):
                load.append(column.group * self.start[(hour + ahead) % number][index])
            for behind in range(column.draining_hours):
                drain.append(column.group * self.stop[(hour - behind) % number][index])
        used = self.cp.new_int_var(0, asked.kinds[kind].units, f"used[{hour},{kind}]")
        serving = [asked.columns[index].group * self.serve[hour][index] for index in own]
        for moving in (load, drain) if asked.exchanges[kind] else (load + drain,):
            self.cp.add(used >= cp_model.LinearExpr.sum(serving + moving))
        return used

    def _changes(self, hour: int) -> None:
        """Groups that start and stop, and the least hours of those that started."""
        for index, column in enumerate(self.asked.columns):
            now, before = self.serve[hour][index], self.serve[hour - 1][index]
            self.cp.add(now - before == self.start[hour][index] - self.stop[hour][index])
            if column.least_hours > 1:
                recent = (self.start[hour - back][index] for back in range(column.least_hours))
                self.cp.add(sum(recent) <= now)

    def _demand(self, hour: int) -> None:
        """Every model is served after every loss."""
        asked = self.asked
        for model in range(len(asked.models)):
            own = asked.of_model[model]
            wanted = asked.demand[model][hour]
            if wanted <= 0:
                continue
            unit = fine_unit(wanted)
            need = down(wanted * (1 - _BAND), unit)
            picked = {index: self._picked(hour, index) for index in own}
            for lost in asked.losses[model]:
                left = [
                    down(
                        min(wanted, asked.columns[index].requests_per_s[max(0, n - lost[index])]),
                        unit,
                    )
                    * one
                    for index in own
                    for n, one in enumerate(picked[index])
                ]
                self.cp.add(sum(left) >= need)

    def _picked(self, hour: int, index: int) -> list[cp_model.IntVar]:
        """For each number of groups, whether it is the one that serves."""
        one = [
            self.cp.new_bool_var(f"serve[{hour},{index}]={n}") for n in range(self.most[index] + 1)
        ]
        self.cp.add_exactly_one(one)
        self.cp.add(self.serve[hour][index] == sum(n * is_n for n, is_n in enumerate(one)))
        return one

    def _power(self, hour: int) -> None:
        cap = self.asked.power_cap_w
        if cap is None:
            return
        unit = fine_unit(cap)
        watts = [min(down(kind.power_w, unit), down(2 * cap, unit)) for kind in self.asked.kinds]
        used = cp_model.LinearExpr.weighted_sum(self._used[hour], watts)
        self.cp.add(used <= down(cap * (1 + _BAND), unit))

    def _money(self) -> None:
        """Reserved units, units rented beyond them, electricity."""
        asked = self.asked
        hours = range(asked.hours)
        terms: list[tuple[float, cp_model.IntVar]] = []
        for index, kind in enumerate(asked.kinds):
            terms.append((asked.hours * kind.reserved_usd_per_hour, self.reserved[index]))
            for hour in hours:
                used = self._used[hour][index]
                more = self.cp.new_int_var(0, kind.units, f"rented[{hour},{index}]")
                self.cp.add(more >= used - self.reserved[index])
                terms.append((kind.on_demand_usd_per_hour[hour], more))
                terms.append((asked.energy_usd(index, hour), used))
        self.usd = fine_unit(max(usd for usd, _ in terms))
        most = sum(asked.hours * kind.units * 2 + kind.units for kind in asked.kinds)
        self.rounding_usd = most * self.usd
        self.cost = sum(down(usd, self.usd) * one for usd, one in terms)
        self.cp.minimize(self.cost)

    def settle(self, cost: int, known: cp_model.CpSolver) -> None:
        """Of plans that cost no more, look for one with the fewest starts, then the fewest groups; from a known one on."""
        self.cp.add(self.cost <= cost)
        serve = [one for row in self.serve for one in row]
        weight = 1 + sum(self.most) * self.asked.hours
        starts = sum(one for row in self.start for one in row)
        for one in (*serve, *self.reserved):
            self.cp.add_hint(one, known.value(one))
        self.cp.minimize(weight * starts + sum(serve))

    def read(self, solver: cp_model.CpSolver) -> Decision:
        """The plan that a solver found."""
        return Decision(
            tuple(solver.value(one) for one in self.reserved),
            tuple(tuple(solver.value(one) for one in row) for row in self.serve),
        )


def _why(asked: Hours, clock: Clock, seed: int) -> str:
    """What of a question without a plan cannot be met."""
    for hour in range(asked.hours):
        alone = replace(
            asked,
            demand=tuple((own[hour],) for own in asked.demand),
            kinds=tuple(
                replace(kind, on_demand_usd_per_hour=(kind.on_demand_usd_per_hour[hour],))
                for kind in asked.kinds
            ),
            columns=tuple(
                replace(one, start_s=0.0, drain_s=0.0, least_hours=1) for one in asked.columns
            ),
            usd_per_kwh=asked.usd_per_kwh[hour : hour + 1],
        )
        _, status = clock.run(_Model(alone).cp, seed=seed, limit_s=_LIMIT_S)
        if status == cp_model.INFEASIBLE:
            rates = ", ".join(
                f"{name} {own[hour]:,.4g}"
                for name, own in zip(asked.models, asked.demand, strict=True)
            )
            loss = f" after the loss of {asked.spare}" if asked.spare else ""
            cap = "" if asked.power_cap_w is None else " within the power limit"
            return f"hour {hour} ({rates} requests/s) is more than all units carry{loss}{cap}"
    return (
        "each hour can be met alone, but no plan changes from hour to hour: units that load or finish requests, or "
        "that must stay on, are too many"
    )


def _gap(usd: float, bound: float) -> float:
    if bound <= 0.0:
        return 0.0 if usd <= 0.0 else float("inf")
    return max(0.0, usd / bound - 1.0)
