"""``kv-tiers``: hold a conversation's KV, reload it from a slower tier, or compute it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from costmodel.layout.layout import KvTier
from costmodel.question.instance import Instance
from costmodel.replica.held import conversation_bytes
from costmodel.replica.tier_use import rent
from rackfit.figures.chart import Chart, Series
from rackfit.studies.base import Axes, Options, Own, Row, Study, along, asked
from rackfit.studies.board import NUMBERS, PARAMETERS
from rackfit.studies.point import found_row
from rackfit.studies.retention import HOLD, retention_row
from rackfit.wording import amount
from solver.clock import Clock
from solver.kv_search import PlanSearch, kv_plans
from topology.errors import InstanceError, Problem

_HOLD, _PLACE, _BOARD = "workload.hold_s", "idle.place", HOLD
_ANY, _NONE = "best", "none"
_PLACES = {
    "hbm": "HBM",
    "host": "host memory",
    "flash": "flash",
    "disk": "disk",
    _NONE: "computing again",
}
#: costs that differ by less are called the same
_TIE = 0.001
_HOUR = 3600.0


def _axes(base: Mapping[str, Any]) -> list[Axes]:
    """Holds of a pause, a meeting, a day, in every place; the blackboard's rule for the same holds."""
    holds: list[Any] = [10, 60, 300, 3600, 86400]
    places: list[Any] = [_ANY, _NONE, "hbm", *base.get("kv_tiers", ())]
    return [{_HOLD: holds, _PLACE: places}, {_BOARD: list(holds)}]


def _answer(instance: Instance, own: Own, options: Options) -> Row:
    if own[_BOARD] is not None:
        return retention_row(instance, own)
    place = own[_PLACE]
    if instance.workload.hold_s is None:
        raise InstanceError(Problem(_HOLD, "is needed, with return_rate and cached_tokens"))
    plans = kv_plans(instance)
    if place != _ANY:
        plans = tuple(plan for plan in plans if (plan.idle or _NONE) == place)
    if not plans:
        message = f"{place!r} is not a place that kv_tiers allows; known: {_ANY}, {_NONE}, hbm"
        raise InstanceError(Problem(_PLACE, message))
    clock = Clock(options.time_limit_s)
    found = PlanSearch(instance, clock=clock, gap=options.gap, seed=options.seed, plans=plans).run()
    row = found_row(instance, found)
    idle = [use for use in found.evaluation.kv_tiers if use.idle]
    row |= {
        "output_tokens": instance.workload.output_tokens,
        "cached_tokens": instance.workload.cached_tokens,
        "return_rate": instance.workload.return_rate,
        "kept_in": idle[0].tier if idle else _NONE,
        "tiers_usd_per_hour": found.evaluation.tiers_usd_per_hour,
    }
    if not idle:
        return row
    kept = sum(use.sequences for use in idle)
    left = float(row["requests_per_s"]) * instance.workload.hold_s
    saved_chip_s = sum(use.saved_chip_s * use.sequences for use in idle) / kept
    return row | {
        "kept_share": min(1.0, kept / left),
        "kept_bytes": sum(use.bytes for use in idle),
        "reload_s": max(use.reload_s for use in idle),
        "saved_chip_s": saved_chip_s,
        **_break_even(instance, saved_chip_s),
    }


def _break_even(instance: Instance, saved_chip_s: float) -> Row:
    """Per place: hold after which a conversation's rent is what its return, where it returns, saves."""
    chip = instance.cluster.usable[0].chip
    usd = chip.usd_per_hour * instance.scenario.prices.chip_price_factor
    saved_usd = (instance.workload.return_rate or 0.0) * saved_chip_s * usd / _HOUR
    one = conversation_bytes(instance)
    row: Row = {
        "recompute_usd_per_m": saved_chip_s * usd / _HOUR / instance.workload.cached_tokens * 1e6
    }
    for place in get_args(KvTier)[:1] + tuple(tier.kind for tier in chip.tiers):
        hourly, _ = rent(chip, place, usd)
        row[f"break_even_{place}_s"] = saved_usd / (one * hourly) * _HOUR if hourly else None
        row[f"hold_{place}_usd_per_m_hour"] = one * hourly / instance.workload.cached_tokens * 1e6
    return row


def _by_place(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in along(rows, _HOLD):
        found.setdefault(str(row.get(_PLACE, _ANY)), []).append(row)
    return found


def _chart(rows: Sequence[Row]) -> Chart:
    names = {_ANY: "best place", _NONE: "computed again", "hbm": "kept in HBM",
             "host": "kept in host memory", "flash": "kept in flash", "disk": "kept on disk"}  # fmt: skip
    series = [
        Series(
            names.get(place, place), [(asked(r, _HOLD), r["usd_per_m_output_tokens"]) for r in line]
        )
        for place, line in _by_place(rows).items()
    ]
    board = along(rows, _BOARD)
    if not series:
        series = [
            Series("hold in HBM", [(r[_BOARD], r["hold_hbm_usd_per_m"]) for r in board]),
            Series("compute again", [(r[_BOARD], r["recompute_usd_per_m"]) for r in board]),
        ]
    return Chart(
        "Cost against how long KV waits", "seconds until a conversation goes on",
        "$ per million output tokens" if _by_place(rows) else "$ per million tokens of context",
        series, log_x=True, log_y=not _by_place(rows),
    )  # fmt: skip


def saving_usd_per_m(best: Row, none: Row) -> float:
    """Dollars saved per million cached tokens that come back, against computing them again."""
    per_request = (
        best["output_tokens"]
        / 1e6
        * (none["usd_per_m_output_tokens"] - best["usd_per_m_output_tokens"])
    )
    return float(per_request / (best["return_rate"] * best["cached_tokens"]) * 1e6)


def _conclude(rows: Sequence[Row]) -> list[str]:
    lines = _by_place(rows)
    said = []
    best = lines.get(_ANY, [])
    if best:
        kept = ", ".join(f"{_time(asked(row, _HOLD))}: {_where(row)}" for row in best)
        said.append(f"Cheapest place by hold: {kept}.")
        said += _ties(best, lines)
    nothing = {asked(row, _HOLD): row for row in lines.get(_NONE, [])}
    for row in best:
        again = nothing.get(asked(row, _HOLD))
        if again is None or row["kept_in"] == _NONE:
            continue
        ratio = again["usd_per_m_output_tokens"] / row["usd_per_m_output_tokens"]
        said.append(
            f"{_time(asked(row, _HOLD))}: computing everything again costs {ratio:.2f} times as much; a "
            f"million cached tokens that come back save ${amount(saving_usd_per_m(row, again))}, "
            + (
                f"and a prompt's KV takes {row['reload_s'] * 1e3:,.0f} ms to load."
                if row["reload_s"] > 0
                else "and nothing has to be loaded."
            )
        )
    known = [row for row in best if row.get("break_even_hbm_s") is not None]
    if known:
        row = known[0]
        evens = ", ".join(
            f"{key.split('_')[2]} {_time(row[key])}"
            for key in row
            if key.startswith("break_even_") and row[key] is not None
        )
        said.append(f"Rent of a place reaches what a return saves after: {evens}.")
    board = along(rows, _BOARD)
    if board:
        tiers = ", ".join(
            f"{_time(row[_BOARD])}: {_PLACES.get(row['suited_tier'], row['suited_tier'])}"
            for row in board
        )
        even = board[0]["break_even_hbm_s"]
        if even is not None:
            said.append(
                f"Blackboard: holding a token in HBM costs as much as computing it again after {_time(even)}."
            )
        said.append(f"Blackboard: tier whose drain time is nearest to the hold, {tiers}.")
        priced = next((row for row in board if "premium_ratio" in row), None)
        if priced is not None:
            said.append(
                f"Price list: {priced['hold_ratio']:.3g} times the hold for {priced['premium_ratio']:.3g} times "
                f"the premium; {'one tier explains that' if priced['one_tier'] else 'that is not rent of one tier'}."
            )
    return said


def _ties(best: Sequence[Row], lines: Mapping[str, Sequence[Row]]) -> list[str]:
    """Which other places cost the same to a tenth of a percent."""
    found = []
    for row in best:
        most = (1 + _TIE) * row["usd_per_m_output_tokens"]
        alike = [
            _PLACES.get(place, place)
            for place, line in lines.items()
            if place not in (_ANY, row["kept_in"])
            and any(
                asked(r, _HOLD) == asked(row, _HOLD) and r["usd_per_m_output_tokens"] <= most
                for r in line
            )
        ]
        if alike:
            found.append(f"{_time(asked(row, _HOLD))}: {', '.join(alike)}")
    return [f"As cheap within {_TIE:.1%}: {'; '.join(found)}."] if found else []


def _where(row: Row) -> str:
    if row["kept_in"] == _NONE:
        return "computed again"
    share = row["kept_share"]
    part = "" if share > 0.995 else f" ({share:.0%} of it, the rest computed again)"
    return f"{_PLACES.get(row['kept_in'], row['kept_in'])}{part}"


def _time(seconds: float) -> str:
    for size, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {name}"
    return f"{seconds:.3g} s"


STUDY = Study(
    name="kv-tiers",
    question="Where should KV wait until its conversation goes on, and when is it computed again?",
    default={
        "model": "llama-3.1-70b",
        "cluster": "hgx-h200",
        "workload": {"input_tokens": 8000, "output_tokens": 500, "cached_tokens": 7000,
                     "hold_s": 300, "return_rate": 0.8},
        "slo": {"ttft": 4.0, "tpot": 0.04},
        "kv_tiers": ["host", "flash", "disk"],
    },
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
    parameters={
        **PARAMETERS,
        _PLACE: _ANY,
        _BOARD: None,
        "board.drains": None,
        "prices.base": None,
        "prices.hit": None,
        "prices.write_short": None,
        "prices.write_long": None,
        "prices.short_s": 300,
        "prices.long_s": 3600,
    },
    numbers=NUMBERS,
    answer=_answer,
    shown={
        "kept_in": "kept in",
        "kept_share": "share",
        "usd_per_m_output_tokens": "$/M output",
        "reload_s": "reload s",
        "suited_tier": "suited",
        "break_even_hbm_s": "break-even HBM s",
    },
)  # fmt: skip
