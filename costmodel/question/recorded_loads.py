"""The expert loads that a workload asks for: generated, uniform, or recorded for this model."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.expert_load import read_loads, skewed_load
from costmodel.models.spec import ModelSpec, MoE
from costmodel.passes.operations import operations_of
from costmodel.question.workload import Workload
from topology.catalogue import is_folder
from topology.errors import InstanceError, Problem, kind_of_data
from topology.names import shown

#: loads that are no recording; of a model without routed experts they say nothing
_GENERATED = ("skewed", "uniform")


def expert_problems(
    model: ModelSpec, workload: Workload, layer_slots: str = "same"
) -> list[Problem]:
    """What is asked of routed experts that the model does not have."""
    if any(isinstance(part, MoE) for layer in model.layers for part in layer.sublayers):
        return []
    asked = {} if layer_slots == "same" else {"layer_slots": layer_slots}
    if workload.expert_load not in _GENERATED:
        asked["workload.expert_load"] = shown(workload.expert_load, 80)
    message = f"{model.name} has no routed experts: leave it out"
    return [Problem(place, f"{value}: {message}") for place, value in asked.items()]


def loads_of_model(
    model: ModelSpec, workload: Workload
) -> tuple[NDArray[np.float64], Literal["measured", "assumed"]]:
    """Loads ``[moe layers, experts]``, each row summing to 1, and whether they were measured.

    Raises ``InstanceError`` for a recording of another model, or for one where the model has no routed experts.
    """
    operations = operations_of(model)
    num_layers = len(operations.moe_layers)
    num_experts = operations.moe.num_experts if operations.moe else 0
    if not num_layers or num_experts == 0:
        if problems := expert_problems(model, workload):
            raise InstanceError(problems)
        return np.zeros((0, 0)), "assumed"
    if workload.expert_load == "uniform":
        return np.full((num_layers, num_experts), 1.0 / num_experts), "assumed"
    if workload.expert_load == "skewed":
        seed = workload.expert_load_seed
        return skewed_load(num_layers, num_experts, seed=seed), "assumed"
    counts = _counts(workload.expert_load, operations.moe_layers[0])
    if counts.shape != (num_layers, num_experts):
        raise InstanceError(
            Problem(
                workload.expert_load,
                f"counts of {counts.shape[0]} layers x {counts.shape[1]} experts; {model.name} has "
                f"{num_layers} MoE layers x {num_experts} experts",
            )
        )
    totals = counts.sum(axis=1, keepdims=True)
    return counts / totals, "measured"


def _counts(path: str, dense_layers: int) -> NDArray[np.float64]:
    """Recorded counts ``[moe layers, experts]``; the model's leading dense layers may be in the file."""
    if "/" not in path and "." not in path and not is_folder(Path(path)):
        message = (
            f"expected {', '.join(_GENERATED)} or a file of recorded counts, got {path[:80]!r}"
        )
        raise InstanceError(Problem(kind_of_data("loads"), message))
    try:
        return read_loads(path).total
    except InstanceError:
        if not dense_layers:
            raise
    return read_loads(path, dense_layers=dense_layers).total
