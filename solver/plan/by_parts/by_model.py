"""Whole groups out of fractions: one model after another by CP-SAT, near its part of the linear relaxation, beside the rest.

Each model's groups stay within one of their fractions; columns that the relaxation leaves out may fill in where they carry
little. What the others take is given: as groups where their turn has been, else as fractions. A second turn sees whole groups
everywhere, so that units exchanged between models are counted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from costmodel.plan.hours import Decision, Hours
from solver.clock import Clock
from solver.plan.by_parts.linear import Array
from solver.plan.model import Given, HoursModel
from topology.errors import NoFeasibleLayout

Groups = NDArray[np.int64]
Units = list[list[int]]

#: seconds of one model's turn at most, the gap at which it ends sooner, and turns of each
_TURN_S, _NEAR, _TURNS = 20.0, 0.01, 2
#: groups beside a fraction that are tried, first these, then those where the demand is not met
_BESIDE = (1, 3, 9)
#: columns that fill in, by groups beside
_FILL = 2
#: what is this near a whole number is one
_WHOLE = 1e-6


def whole_groups(
    asked: Hours, fractions: Array, reserved: tuple[int, ...], *, clock: Clock, seed: int
) -> Groups:
    """Groups ``[hour, column]`` that meet the demand; ``reserved`` units are decided.

    Raises ``NoFeasibleLayout`` where a model finds no room, ``NoLayoutInTime`` where the time ends first.
    """
    kinds = tuple(
        replace(kind, reserved=(own, own)) for kind, own in zip(asked.kinds, reserved, strict=True)
    )
    asked = replace(asked, kinds=kinds)
    now = fractions.copy()
    whole = np.zeros(now.shape, np.int64)
    weight = [float((now[:, own] * _usd(asked, own)).sum()) for own in asked.of_model]
    for turn in range(_TURNS):
        for model in sorted(range(len(asked.models)), key=lambda m: -weight[m]):
            if clock.over and turn:
                return whole
            own = asked.of_model[model]
            hint = whole[:, own] if turn else None
            found = _turn(asked, model, now, fractions, hint, clock, seed)
            now[:, own] = whole[:, own] = found
    return whole


def _usd(asked: Hours, columns: list[int]) -> Array:
    """Money of a group of each column in an hour, on average."""
    return np.array(
        [
            asked.columns[c].group
            * float(np.mean(asked.kinds[asked.columns[c].kind].on_demand_usd_per_hour))
            for c in columns
        ]
    )


def _turn(
    asked: Hours,
    model: int,
    now: Array,
    fractions: Array,
    hint: Groups | None,
    clock: Clock,
    seed: int,
) -> Groups:
    """One model's groups, beside the others as they are."""
    own = asked.of_model[model]
    alone = replace(
        asked,
        models=(asked.models[model],),
        demand=(asked.demand[model],),
        columns=tuple(replace(asked.columns[c], model=0) for c in own),
    )
    others = now.copy()
    others[:, own] = 0.0
    serve, load, drain = in_use(asked, others)
    for beside in _BESIDE:
        room = np.array([kind.units for kind in asked.kinds]) - serve - np.maximum(load, drain)
        least, most = _ranges(asked, own, fractions[:, own], room, beside)
        given = Given(
            least.tolist(), most.tolist(), *_beside(asked, serve, load, drain), asked.exchanges
        )
        built = HoursModel(alone, given)
        if hint is not None:
            for row, values in zip(built.serve, hint.tolist(), strict=True):
                for one, value in zip(row, values, strict=True):
                    built.cp.add_hint(one, value)
        solver, status = clock.run(
            built.cp,
            seed=seed,
            limit_s=_TURN_S,
            linearize=True,
            accept_gap=_NEAR / len(asked.models),
        )
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return np.array(built.read(solver).groups, np.int64)
        if hint is not None:
            return hint
        if clock.over:
            raise clock.late("a plan")
    raise NoFeasibleLayout(
        f"{asked.models[model]} finds no room beside the others in whole units", proven=False
    )


def _ranges(
    asked: Hours, own: list[int], parts: Array, room: Array, beside: int
) -> tuple[Groups, Groups]:
    """Least and most groups of one model's columns ``[hour, column]``: near its parts, and a few where others leave room."""
    tops = np.array([len(asked.columns[c].requests_per_s) - 1 for c in own])
    group = np.array([asked.columns[c].group for c in own])
    free = room[:, [asked.columns[c].kind for c in own]] // group
    down = np.floor(parts + _WHOLE).astype(np.int64)
    up = np.ceil(parts - _WHOLE).astype(np.int64)
    taken = parts.max(axis=0) > _WHOLE
    rates = np.array(
        [asked.columns[c].requests_per_s[1] if tops[i] else 0.0 for i, c in enumerate(own)]
    )
    price = _usd(asked, own) / np.maximum(rates, 1e-12)
    # fillers: the cheapest of those that are free in every hour
    fills = [i for i in np.argsort(price) if not taken[i] and free[:, i].min() > beside]
    fill = np.zeros(len(own), np.int64)
    fill[fills[: _FILL * beside]] = beside
    least = np.where(taken, np.maximum(0, down - beside), 0)
    most = np.minimum(tops, np.where(taken, up + beside, fill))
    return np.minimum(least, most), most


def in_use(asked: Hours, groups: Array | Groups) -> tuple[Array, Array, Array]:
    """Units ``[hour, kind]`` that serve, that load, that finish."""
    number = asked.hours
    change = groups - np.roll(groups, 1, axis=0)
    start, stop = np.maximum(change, 0), np.maximum(-change, 0)
    tables = [np.zeros((number, len(asked.kinds))) for _ in range(3)]
    for c in np.flatnonzero(np.any(groups != 0, axis=0)):
        column = asked.columns[c]
        tables[0][:, column.kind] += column.group * groups[:, c]
        for ahead in range(1, column.loading_hours + 1):
            tables[1][:, column.kind] += column.group * np.roll(start[:, c], -ahead)
        for behind in range(column.draining_hours):
            tables[2][:, column.kind] += column.group * np.roll(stop[:, c], behind)
    return tables[0], tables[1], tables[2]


def _beside(asked: Hours, serve: Array, load: Array, drain: Array) -> tuple[Units, Units, Units]:
    """Whole units of the others: as many as their parts take, but together no more than there are."""
    units = np.array([kind.units for kind in asked.kinds], float)
    exchange = np.array(asked.exchanges)
    serve, load, drain = (np.ceil(one - _WHOLE) for one in (serve, load, drain))
    load = np.minimum(load, units - serve)
    drain = np.minimum(drain, units - serve - np.where(exchange, 0.0, load))
    return _listed(serve), _listed(load), _listed(drain)


def _listed(table: Array) -> Units:
    found: Units = table.astype(np.int64).tolist()
    return found


def decision(groups: Groups, reserved: tuple[int, ...]) -> Decision:
    """The plan of such groups."""
    return Decision(reserved, tuple(tuple(row) for row in groups.tolist()))
