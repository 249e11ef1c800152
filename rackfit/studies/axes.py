"""What a study may vary: every key of a scenario and of its parts, figures of chips, options of the network."""

from __future__ import annotations

from difflib import get_close_matches

from pydantic import BaseModel

from costmodel.question.scenario import Scenario
from costmodel.question.what_if import CHIP_FIGURES
from costmodel.question.workload import Limits, Prices, Slo, Workload
from topology.errors import InstanceError, Problem
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


def check_axis(key: str) -> None:
    """Raise ``InstanceError`` with the axes that there are for a key that is none."""
    names = axis_names()
    head = key.split(".")[0]
    if key in names or head in _OPEN or head in names:  # what has no parts is said with the value
        return
    close = get_close_matches(key, names, n=3, cutoff=0.6)
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    raise InstanceError(
        Problem(f"--over {key[:80]}", f"unknown key; {meant}axes: {', '.join(names)}")
    )
