r"""The CP-SAT model of a plan: which groups serve which model when, and how many units are reserved.

    n[h, j]     groups of column j that serve in hour h
    s, e[h, j]  groups that start with hour h, and that stopped with it:   n[h] - n[h-1] = s[h] - e[h]
    t[h, k]     units of kind k that load or finish in hour h
    b[h, k]     units in use:  sum_j g_j n[h, j] + t[h, k]  <=  units_k
    r[k], o     units reserved, and rented beyond them:  o[h, k] >= b[h, k] - r[k]

Columns that share units have as many groups each, ``n[h, j] = n[h, j']``; where a unit counts in parts, ``b`` times them holds what
is in use. Each hour serves its demand after every loss, ``sum_j C_j(n[h, j] - lost_j) >= d[h]``; hours repeat. Rates and power are
counted so finely that sums equal to a limit meet it, and what meets it here meets it within the judge's rounding band;
money is rounded down, so that the bound holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from costmodel.plan.hours import Decision, Hours
from costmodel.plan.judge import Judged
from costmodel.tolerance import RELATIVE
from solver.scaling import down, fine_unit

#: sums and limits so close, relatively, are equal: half the judge's own band
_BAND = RELATIVE / 2


@dataclass(frozen=True)
class Given:
    """What a part of a larger question is given: ``least``, ``most`` groups ``[hour][column]`` that may serve, and units
    ``[hour][kind]`` of models that the question does not have: they serve, load and finish. ``exchanges``: as of all models.
    """

    least: Sequence[Sequence[int]]
    most: Sequence[Sequence[int]]
    serve: Sequence[Sequence[int]]
    load: Sequence[Sequence[int]]
    drain: Sequence[Sequence[int]]
    exchanges: Sequence[bool]


class HoursModel:
    """The variables and rules of one question."""

    def __init__(
        self, asked: Hours, given: Given | None = None, parts: Sequence[int] | None = None
    ) -> None:
        """``parts``: by kind, how many groups of size 1 a unit has room for; 1 unless told."""
        self.asked, self.given, self.cp = asked, given, cp_model.CpModel()
        self.parts = [1] * len(asked.kinds) if parts is None else parts
        hours, columns = range(asked.hours), asked.columns
        self.reserved = [
            self.cp.new_int_var(*kind.reserved, f"reserved[{kind.name}]") for kind in asked.kinds
        ]
        self.most = [len(one.requests_per_s) - 1 for one in columns]
        zeros = [[0] * len(columns)] * asked.hours
        self.least_in = zeros if given is None else given.least
        self.most_in = [self.most] * asked.hours if given is None else given.most
        self.serve = self._table("serve", self.least_in, self.most_in)
        self.start, self.stop = (
            self._table(name, zeros, [self.most] * asked.hours) for name in ("start", "stop")
        )
        self._is: list[list[dict[int, cp_model.IntVar]]] = [[{} for _ in columns] for _ in hours]
        self._used = [[self._used_in(hour, k) for k in range(len(asked.kinds))] for hour in hours]
        for hour in hours:
            self._changes(hour)
            self._demand(hour)
            self._power(hour)
        self._money()

    def _table(
        self, name: str, least: Sequence[Sequence[int]], most: Sequence[Sequence[int]]
    ) -> list[list[cp_model.IntVar]]:
        return [
            [
                self.cp.new_int_var(low, high, f"{name}[{hour},{one.name}]")
                for one, low, high in zip(self.asked.columns, lows, highs, strict=True)
            ]
            for hour, (lows, highs) in enumerate(zip(least, most, strict=True))
        ]

    def _used_in(self, hour: int, kind: int) -> cp_model.IntVar:
        """Units of a kind in use in an hour."""
        asked, number = self.asked, self.asked.hours
        own = asked.of_kind[kind]
        load: list[cp_model.LinearExpr | int] = []
        drain: list[cp_model.LinearExpr | int] = []
        for index in own:
            column = asked.columns[index]
            for ahead in range(1, column.loading_hours + 1):
                load.append(column.group * self.start[(hour + ahead) % number][index])
            for behind in range(column.draining_hours):
                drain.append(column.group * self.stop[(hour - behind) % number][index])
        used = self.cp.new_int_var(0, asked.kinds[kind].units, f"used[{hour},{kind}]")
        serving: list[cp_model.LinearExpr | int] = [
            asked.columns[index].group * self.serve[hour][index] for index in own
        ]
        if self.given is not None:
            serving.append(self.given.serve[hour][kind])
            load.append(self.given.load[hour][kind])
            drain.append(self.given.drain[hour][kind])
        exchanges = asked.exchanges if self.given is None else self.given.exchanges
        for moving in (load, drain) if exchanges[kind] else (load + drain,):
            self.cp.add(self.parts[kind] * used >= cp_model.LinearExpr.sum(serving + moving))
        return used

    def _changes(self, hour: int) -> None:
        """Groups that start and stop, and the least hours of those that started."""
        for index, column in enumerate(self.asked.columns):
            now, before = self.serve[hour][index], self.serve[hour - 1][index]
            self.cp.add(now - before == self.start[hour][index] - self.stop[hour][index])
            if column.least_hours > 1:
                recent = (self.start[hour - back][index] for back in range(column.least_hours))
                self.cp.add(sum(recent) <= now)
        for first, *others in self.asked.together:
            for index in others:
                self.cp.add(self.serve[hour][index] == self.serve[hour][first])

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
                    down(min(wanted, asked.columns[index].left(n, lost[index])), unit) * one
                    for index in own
                    for n, one in picked[index].items()
                ]
                self.cp.add(sum(left) >= need)

    def _picked(self, hour: int, index: int) -> dict[int, cp_model.IntVar]:
        """For each number of groups, whether it is the one that serves."""
        numbers = range(self.least_in[hour][index], self.most_in[hour][index] + 1)
        one = {n: self.cp.new_bool_var(f"serve[{hour},{index}]={n}") for n in numbers}
        self.cp.add_exactly_one(one.values())
        self.cp.add(self.serve[hour][index] == sum(n * is_n for n, is_n in one.items()))
        self._is[hour][index] = one
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
        self._rented: list[list[cp_model.IntVar]] = []
        for index, kind in enumerate(asked.kinds):
            terms.append((asked.hours * kind.reserved_usd_per_hour, self.reserved[index]))
            self._rented.append([])
            for hour in hours:
                used = self._used[hour][index]
                more = self.cp.new_int_var(0, kind.units, f"rented[{hour},{index}]")
                self.cp.add(more >= used - self.reserved[index])
                terms.append((kind.on_demand_usd_per_hour[hour], more))
                self._rented[index].append(more)
                terms.append((asked.energy_usd(index, hour), used))
        self.usd = fine_unit(max(usd for usd, _ in terms))
        most = sum(asked.hours * kind.units * 2 + kind.units for kind in asked.kinds)
        self.rounding_usd = most * self.usd
        self.cost = sum(down(usd, self.usd) * one for usd, one in terms)
        self.cp.minimize(self.cost)

    def use_at_least(self, hour: int, kind: int, units: int) -> None:
        """So many units of a kind are in use in an hour."""
        self.cp.add(self._used[hour][kind] >= units)

    def begin_with(self, plan: Decision, judged: Judged) -> None:
        """Tell the solver a plan that the judge accepts: the value of every variable, so that it need not complete it.

        Plans that it was told before are forgotten.
        """
        self.cp.proto.clear_solution_hint()
        for one, units in zip(self.reserved, plan.reserved, strict=True):
            self.cp.add_hint(one, units)
        for hour, groups in enumerate(plan.groups):
            for index, number in enumerate(groups):
                more = number - plan.groups[hour - 1][index]
                self.cp.add_hint(self.serve[hour][index], number)
                self.cp.add_hint(self.start[hour][index], max(0, more))
                self.cp.add_hint(self.stop[hour][index], max(0, -more))
                for n, one in self._is[hour][index].items():
                    self.cp.add_hint(one, n == number)
            own = judged.hours[hour]
            for index, used in enumerate(self._used[hour]):
                units = own.serving[index] + own.moving[index]
                self.cp.add_hint(used, units)
                rented = max(0, units - plan.reserved[index])
                self.cp.add_hint(self._rented[index][hour], rented)

    def settle(self, cost: int, known: cp_model.CpSolver) -> None:
        """Of plans that cost no more, look for one with the fewest starts, then the fewest groups; from a known one on."""
        self.cp.add(self.cost <= cost)
        serve = [one for row in self.serve for one in row]
        weight = 1 + sum(self.most) * self.asked.hours
        starts = sum(one for row in self.start for one in row)
        self.cp.proto.clear_solution_hint()
        for one in (*serve, *self.reserved):
            self.cp.add_hint(one, known.value(one))
        self.cp.minimize(weight * starts + sum(serve))

    def read(self, solver: cp_model.CpSolver) -> Decision:
        """The plan that a solver found."""
        return Decision(
            tuple(solver.value(one) for one in self.reserved),
            tuple(tuple(solver.value(one) for one in row) for row in self.serve),
        )
