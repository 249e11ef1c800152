"""The profile that own runs give: the former one with their chips and engines replaced, and what it is worth in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.intervals import NINETY
from costmodel.measured.fitting.parameters import ALL, efficiency_at, values_at
from costmodel.measured.own.calibration import Cell, OwnCalibration
from costmodel.measured.own.pace import PACE, own_values
from costmodel.measured.own.prior import cell as cell_of
from costmodel.question.profile import Efficiency, EngineConstants, Profile

Array = NDArray[np.float64]
#: share of the way between a parameter's limits within which it is said to be at one
_AT_LIMIT = 0.02
#: a parameter is told by the runs that lost this share of its variance
TOLD = 0.1


@dataclass(frozen=True)
class Moved:
    """A parameter before and after; ``low``, ``high``: 90 % interval; ``told``: share of its variance that runs took."""

    name: str
    before: float
    value: float
    low: float
    high: float
    told: float
    limit: float | None


def moved(cell: Cell) -> list[Moved]:
    """Every parameter of a cell, and the pace that multiplies all times beside them."""
    width = NINETY * cell.after.sd
    before = values_at(cell.prior.mean[:, None])
    low, value, high = (
        values_at((cell.after.mean + sign * width)[:, None]) for sign in (-1.0, 0.0, 1.0)
    )
    found = []
    for parameter, told in zip(ALL, cell.told()[:-1], strict=True):
        name = parameter.name
        at = float(value[name][0])
        share = np.log(at / parameter.low) / np.log(parameter.high / parameter.low)
        limit = None
        if share < _AT_LIMIT:
            limit = parameter.low
        elif share > 1.0 - _AT_LIMIT:
            limit = parameter.high
        ends = float(low[name][0]), float(high[name][0])
        found.append(Moved(name, float(before[name][0]), at, *ends, max(0.0, float(told)), limit))
    slow, pace, fast = np.exp(cell.after.mean[-1] + width[-1] * np.array([-1.0, 0.0, 1.0]))
    told = max(0.0, float(cell.told()[-1]))
    return [*found, Moved(PACE, 1.0, float(pace), float(slow), float(fast), told, None)]


def own_profile(found: OwnCalibration, base: Profile, name: str) -> Profile:
    """The base with the cells of the runs. A chip's values for no engine are those of its engine with most runs."""
    engines = dict(base.engines)
    chips = dict(base.chips)
    first_token = dict(base.first_token)
    counts = {
        (cell.prior.chip, cell.prior.engine): sum(
            (run.chip, run.row.engine) == (cell.prior.chip, cell.prior.engine) for run in found.runs
        )
        for cell in found.cells
    }
    # the engine with most runs of a chip comes last
    for cell in sorted(found.cells, key=lambda c: counts[c.prior.chip, c.prior.engine]):
        chip, engine = cell.prior.chip, cell.prior.engine
        values = efficiency_of(cell.after.mean, cell_of(base, chip, engine))
        own = engines.get(engine, EngineConstants(default=base.default))
        engines[engine] = own.model_copy(update={"chips": {**own.chips, chip: values}})
        chips[chip] = values
        first_token |= cell.first_token
    cells = ", ".join(f"{chip} with {engine}" for chip, engine in counts)
    return base.model_copy(
        update={
            "name": name,
            "description": (
                f"{base.name}, its constants of {cells} moved by own runs as far as these can tell. Intervals are those "
                f"of {base.name}."
            ),
            "engines": engines,
            "chips": chips,
            "first_token": first_token,
            "fitted_on": f"{base.fitted_on}; then {len(found.runs)} own runs on {cells}",
            "error": "; ".join(error_words(found)),
        }
    )


def efficiency_of(scales: Array, former: Efficiency) -> Efficiency:
    """Values at unknowns ``[unknowns]``; what is not fitted stays as it was."""
    found = efficiency_at(own_values(scales[:, None]), 0, former.runtime_bytes, measured=True)
    # what unfused layers take own runs have told as part of ``moe_overhead_s``, unless their recipe said so
    kept = {"routing_noise": former.routing_noise, "unfused_moe_overhead_s": 0.0}
    return found.model_copy(update=kept)


def error_words(found: OwnCalibration) -> list[str]:
    """Errors before and after, each run predicted by the others."""
    words = []
    for name, (before, after) in (("TPOT", found.tpot()), ("TTFT", found.ttft())):
        if before is None:
            continue
        line = f"{name} of {before.n} own runs: mean error {before.mape:.1%} as shipped"
        if after is None:
            line += "; one run of a chip and engine cannot be predicted by others"
        else:
            line += (
                f", {after.mape:.1%} predicted by the other runs (median {after.median_ape:.1%})"
            )
        words.append(line)
    return words
