"""What a study may vary: every key of a scenario and of its parts, figures of chips, options of the network."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from pydantic import BaseModel

from costmodel.question.scenario import Scenario
from costmodel.question.what_if import CHIP_FIGURES
from costmodel.question.workload import Limits, Prices, Slo, Workload
from topology.errors import Problem
from topology.scaleout.base import NetworkSpec

_PARTS: dict[str, type[BaseModel]] = {
    "slo": Slo,
    "workload": Workload,
    "prices": Prices,
    "limits": Limits,
}
#: keys with parts of their own that are not listed one by one
_OPEN = ("speculative", "adapters", "workload")


def axis_names() -> list[str]:
    """Every axis, in the order in which they are told."""
    names = [
        key
        for key in Scenario.model_fields
        if key not in ("name", "description", "chip", "scale_out", *_PARTS)
    ]
    names += [f"{part}.{key}" for part, model in _PARTS.items() for key in model.model_fields]
    names += ["chip.name", *(f"chip.{key}" for key in CHIP_FIGURES)]
    names += [f"chip.flops_per_s.{dtype}" for dtype in ("bf16", "fp8", "fp4", "int8")]
    names += [f"scale_out.{key}" for key in NetworkSpec.model_fields if key != "kind"]
    return [*names, "cluster.domain_size", "workload"]


def unknown_axes(keys: Iterable[str]) -> dict[str, Problem]:
    """Keys that are no axis, with what is wrong; the last one tells the axes that there are."""
    names = axis_names()
    found: dict[str, Problem] = {}
    for key in keys:
        head = key.split(".")[0]
        if key in names or head in _OPEN or head in names:
            continue  # what has no parts is said with the value
        close = get_close_matches(key, names, n=3, cutoff=0.6)
        meant = f"; did you mean {' or '.join(close)}?" if close else ""
        found[key] = Problem(f"--over {key[:80]}", f"unknown key{meant}")
    if found:
        last = found[key := list(found)[-1]]
        found[key] = Problem(
            last.place,
            f"{last.message}{'' if last.message.endswith('?') else ';'} axes: {', '.join(names)}",
        )
    return found
