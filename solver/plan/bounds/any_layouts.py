"""What a plan costs at least, whatever layouts its units run: of one model each, or shared by several chip by chip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, product
from math import ceil, inf, isfinite

from ortools.sat.python import cp_model

from costmodel.plan.hours import Column, Hours
from costmodel.tolerance import exceeds
from solver.clock import Clock
from solver.plan.by_parts.linear import Linear
from solver.plan.hours import LIMIT_S, SMALL
from solver.plan.model import HoursModel
from topology.errors import NoFeasibleLayout, NoLayoutInTime

#: a time that is not nothing, for what takes some time in any layout, seconds
_SOME_S = 1.0

#: by model and kind, requests/s of none, one, two ... units
Few = Mapping[tuple[int, int], Sequence[float]]


def any_layouts(
    asked: Hours,
    most: Sequence[Sequence[float]],
    *,
    loads: bool,
    drains: bool,
    few: Few | None = None,
    left: Few | None = None,
) -> Hours:
    """The question of plans whose unit of kind ``k`` carries at most ``most[model][k]`` requests/s in any layout.

    ``few``: by model and kind, requests/s that none, one, two ... units carry at most; ``left``: of these after any loss of one.

    A unit runs one model in an hour. ``loads``, ``drains``: every layout takes some time to load, to finish; the hour that
    is paid for it then is. What is longer than an hour, and units that may not be exchanged within one, are left out.
    """
    columns = []
    for m, k, each in _carriers(asked, most):
        carried = _at_most(asked.kinds[k].units, each, () if few is None else few[m, k])
        after_loss = () if left is None else _left_at_most(carried, left[m, k])
        columns.append(_column(asked, m, k, carried, after_loss, loads=loads, drains=drains))
    return replace(asked, columns=tuple(columns))


def _carriers(asked: Hours, most: Sequence[Sequence[float]]) -> Iterator[tuple[int, int, float]]:
    """Models and kinds that run them, and requests/s of a unit; what is not known is as much as is asked for."""
    for m, k in product(range(len(asked.models)), range(len(asked.kinds))):
        if most[m][k] > 0:
            yield m, k, most[m][k] if isfinite(most[m][k]) else max(asked.demand[m])


def _column(
    asked: Hours,
    model: int,
    kind: int,
    carried: tuple[float, ...],
    after_loss: tuple[float, ...],
    *,
    loads: bool = True,
    drains: bool = True,
) -> Column:
    """Groups of any layouts, as quick to load and finish, and as free to change, as any may be."""
    return Column(
        f"{asked.models[model]} on {asked.kinds[kind].name}", model, kind, 1, carried,
        start_s=_SOME_S * loads, drain_s=_SOME_S * drains,
        least_hours=min((one.least_hours for one in asked.columns), default=1), after_loss=after_loss,
    )  # fmt: skip


def _left_at_most(carried: Sequence[float], left: Sequence[float]) -> tuple[float, ...]:
    """Requests/s of none, one, two ... units at most once one is lost: no more than one fewer carries; it never falls."""
    fewer = (0.0, *carried[:-1])
    table = [min(own, left[n]) if n < len(left) else own for n, own in enumerate(fewer)]
    return tuple(accumulate(table, max))


def _at_most(units: int, each: float, few: Sequence[float]) -> tuple[float, ...]:
    """Requests/s of none, one, two ... units at most; it never falls."""
    table = [n * each if n >= len(few) else min(n * each, few[n]) for n in range(units + 1)]
    return tuple(accumulate(table, max))


def any_parts(
    asked: Hours,
    most: Sequence[Sequence[float]],
    shares: Sequence[Sequence[float]],
    *,
    few: Few,
) -> Hours:
    """The question of plans whose units any models share, chip by chip, in any layouts; its groups are of one chip.

    ``shares``: by kind, of each chip of a unit what it costs as a part of the unit. As in :func:`any_layouts`, a
    unit carries at most ``most``, and a part of it no more than that part of its money does; ``few``: as there, of units whose chips are
    alike, on so many chips wherever they stand. Chips of a model load before they serve and finish after. Spread over all units of a kind, a
    model loses the fewest chips with one.
    """
    columns = []
    for m, k, each in _carriers(asked, most):
        size, units = len(shares[k]), asked.kinds[k].units
        whole = (*few[m, k], *[inf] * (units + 1))
        dearest = sorted([*shares[k]] * units, reverse=True)
        money = enumerate(accumulate(dearest, initial=0.0))
        limited = (min(each * own, whole[ceil(chips / size)]) for chips, own in money)
        carried = tuple(accumulate(limited, max))
        left = (carried[chips - ceil(chips / units)] for chips in range(len(carried)))
        columns.append(_column(asked, m, k, carried, tuple(accumulate(left, max))))
    return replace(asked, columns=tuple(columns))


def _least_units(asked: Hours, hour: int, parts: int) -> int:
    """Units of the only kind that an hour takes: those that a loss takes, and what holds the fewest parts of every model."""
    needed = 0
    for model, own in enumerate(asked.of_model):
        wanted = asked.demand[model][hour]
        if wanted > 0 and own:
            table = asked.columns[own[0]].requests_per_s
            needed += next((n for n, rate in enumerate(table) if not exceeds(wanted, rate)), 0)
    return asked.units_lost[0] + ceil(needed / parts) if needed else 0


def bound_usd(
    asked: Hours, *, clock: Clock, seed: int = 0, parts: Sequence[int] | None = None
) -> float:
    """Money of any plan of such a question, at least. ``parts``: by kind, groups that a unit has room for, where that is not one.

    Raises ``NoFeasibleLayout`` where even so much does not meet the demand.
    """
    model = HoursModel(asked, parts=parts)
    if parts is not None and len(parts) == 1:
        for hour in range(asked.hours):
            model.use_at_least(hour, 0, _least_units(asked, hour, parts[0]))
    solver, status = clock.run(model.cp, seed=seed, limit_s=LIMIT_S, linearize=True)
    if status == cp_model.INFEASIBLE:
        raise NoFeasibleLayout(
            "no plan meets the demand: even what units carry at most is too little"
        )
    found = max(0.0, solver.best_objective_bound * model.usd)
    if status == cp_model.OPTIMAL or asked.choices <= SMALL or parts is not None:
        return found
    # without it the bound is lower; the plan that stands is not lost for it
    with suppress(NoLayoutInTime):
        found = max(found, Linear(asked).solve(clock=clock, limit_s=LIMIT_S).bound_usd)
    return found
