"""``sensitivity``: each figure of the hardware and each price 20 % down and up: what moves the cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from costmodel.question.instance import Instance
from costmodel.question.profile import Efficiency
from rackfit.figures.chart import Chart, Series
from rackfit.studies.altered import with_chips
from rackfit.studies.base import ONE_RACK, SOLVED, Axes, Options, Own, Row, Study, solved
from rackfit.studies.point import solve_row
from rackfit.wording import amount
from topology import Chip
from topology.errors import InstanceError, Problem
from topology.quantity import per_cent

#: figures of a chip, with what they are called in words
_CHIP = {
    "usd_per_hour": "price of a chip-hour",
    "flops_per_s": "FLOP/s",
    "hbm_bytes_per_s": "HBM bandwidth",
    "hbm_bytes": "HBM capacity",
    "scale_up_bytes_per_s": "scale-up bandwidth",
    "nic_bytes_per_s": "scale-out bandwidth",
    "power_w": "power",
}
_OVERHEADS = tuple(name for name in Efficiency.model_fields if name.endswith("_overhead_s"))
PARAMETERS = (*_CHIP, "engine_overheads")
#: a change of the cost below this is lost in the gap to which each point is proven
_GAP = 0.005


def _axes(base: Mapping[str, Any]) -> list[Axes]:
    return [{"unchanged": [True]}, {"parameter": list(PARAMETERS), "factor": [0.8, 1.2]}]


def _answer(instance: Instance, own: Own, options: Options) -> Row:
    """Solved to a narrower gap than usual: the changes looked for are small."""
    name, factor = str(own["parameter"]), own["factor"]
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1000:
        message = f"must be a number above 0 and below 1,000, got {factor!r}"
        raise InstanceError(Problem("factor", message))
    if name == "engine_overheads":
        instance = _with_overheads(instance, float(factor))
    elif name in _CHIP:
        instance = with_chips(instance, lambda chip: _scaled(chip, name, float(factor)))
    elif not own["unchanged"]:
        known = ", ".join(PARAMETERS)
        raise InstanceError(Problem("parameter", f"unknown {name[:40]!r}; known: {known}"))
    return solve_row(instance, replace(options, gap=min(options.gap, _GAP)))


def _scaled(chip: Chip, name: str, factor: float) -> Chip:
    """The chip with one figure (FLOP/s: of every format) times ``factor``."""
    value = getattr(chip, name)
    if isinstance(value, dict):
        return chip.model_copy(update={name: {k: v * factor for k, v in value.items()}})
    return chip.model_copy(update={name: value * factor})


def _with_overheads(instance: Instance, factor: float) -> Instance:
    profile = instance.profile

    def scaled(found: Efficiency) -> Efficiency:
        return found.model_copy(update={name: getattr(found, name) * factor for name in _OVERHEADS})

    chips = {name: scaled(found) for name, found in profile.chips.items()}
    changed = profile.model_copy(update={"default": scaled(profile.default), "chips": chips})
    return replace(instance, profile=changed)


def _changes(rows: Sequence[Row]) -> tuple[Row | None, dict[str, dict[float, float]]]:
    """The unchanged row, and by parameter and factor the relative change of $/token."""
    base = next((row for row in solved(rows) if row.get("unchanged")), None)
    found: dict[str, dict[float, float]] = {}
    if base is None:
        return None, found
    cost = base["usd_per_m_output_tokens"]
    for row in solved(rows):
        if not row.get("unchanged"):
            change = row["usd_per_m_output_tokens"] / cost - 1.0
            factor = float(row.get("factor", 1.0))
            found.setdefault(row["parameter"], {})[factor] = change
    order = sorted(found, key=lambda name: -max(abs(change) for change in found[name].values()))
    return base, {name: found[name] for name in order}


def _said(name: str) -> str:
    return _CHIP.get(name, name.replace("_", " "))


def _chart(rows: Sequence[Row]) -> Chart:
    _, found = _changes(rows)
    factors = sorted({factor for changes in found.values() for factor in changes})
    series = [
        Series(
            f"{factor - 1:+.0%}",
            [
                (_said(name), changes[factor] * 100)
                for name, changes in found.items()
                if factor in changes
            ],
        )
        for factor in factors
    ]
    return Chart(
        "What moves the cost of a token, each figure changed alone", "figure that is changed",
        "change of $ per output token, %", series, kind="bar",
    )  # fmt: skip


def _conclude(rows: Sequence[Row]) -> list[str]:
    base, found = _changes(rows)
    if base is None or not found:
        return ["The unchanged point has no answer: nothing to compare with."]
    said = [
        f"Unchanged: ${amount(base['usd_per_m_output_tokens'])} per million output tokens, proven to "
        f"{base['gap']:.2%}."
    ]
    still = []
    for name, changes in found.items():
        if max(abs(change) for change in changes.values()) <= 2 * _GAP:
            still.append(_said(name))
            continue
        listed = ", ".join(
            f"{factor - 1:+.0%} changes it by {per_cent(change, signed=True)}"
            for factor, change in sorted(changes.items())
        )
        said.append(f"{_said(name)}: {listed}.")
    if still:
        said.append(
            f"Below {2 * _GAP:.0%}, which the proofs do not tell apart: {', '.join(still)}."
        )
    return said


STUDY = Study(
    name="sensitivity",
    question="Which figure of the hardware or of the prices moves the cost of a token?",
    default=ONE_RACK,
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
    parameters={"parameter": "none", "factor": 1.0, "unchanged": False},
    answer=_answer,
    shown={**SOLVED, "joules_per_output_token": "J/token"},
)  # fmt: skip
