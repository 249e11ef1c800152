"""Bytes in the HBM of every chip of a replica by kind."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import Replica, Stage
from costmodel.passes.tokens import held_evenly
from costmodel.question.instance import Instance
from costmodel.replica.serving import Schedule

Array = NDArray[np.float64]


def stage_memory(instance: Instance, replica: Replica, plan: Schedule) -> list[dict[str, Array]]:
    """Bytes on each chip by kind ``[chips]``, stage by stage."""
    shape, context = replica.shape, instance.kept_context(replica.role)
    width = instance.width_bytes(shape.tp)
    rows, sampled = float(plan.rows()), float(plan.sampled())
    sequences = np.repeat(np.array(replica.rank_sequences(), dtype=float), shape.tp)
    chips, ones = shape.chips_per_stage, np.ones(shape.chips_per_stage)
    moe = instance.operations.moe
    cut = moe is not None and replica.cuts_experts
    found = []
    for index, stage in enumerate(replica.stages):
        counts = instance.operations.layers_within(*stage.layers)
        first, last = index == 0, index == len(replica.stages) - 1
        # only the last stage scores a vocabulary
        active = width.active(rows, sampled if last else 0.0)
        experts = width.slot(counts) * np.array(stage.slots(), dtype=float)
        if cut and moe is not None:
            experts = ones * width.slot(counts) * held_evenly(moe, chips, 0.0)
        elif stage.layer_slots:
            experts = _unlike_experts(instance, stage)
        found.append(
            {
                "weights": ones * width.weights(counts, chips, first=first, last=last, cut=cut),
                "experts": experts,
                "kv": width.cached(counts, context, last=last) * sequences,
                "activations": ones * active,
                "runtime": _runtime(instance, stage),
            }
        )
    return found


def _runtime(instance: Instance, stage: Stage) -> Array:
    """Bytes that the engine takes ``[chips]``."""
    names = instance.cluster.chip_names
    if len(names) == 1:
        return np.full(len(stage.chips), instance.profile.for_chip(names[0]).runtime_bytes)
    known = {name: instance.profile.for_chip(name).runtime_bytes for name in names}
    return np.array([known[instance.cluster.chip(chip).chip.name] for chip in stage.chips])


def _unlike_experts(instance: Instance, stage: Stage) -> Array:
    """Bytes of expert slots on each chip ``[chips]``, layer by layer."""
    found = np.zeros(len(stage.chips))
    for kind in instance.operations.kinds:
        inside = [layer for layer in kind.layers if stage.layers[0] <= layer <= stage.layers[1]]
        if kind.moe is not None and inside:
            found += kind.moe.expert_bytes * np.sum(
                [stage.slots(layer) for layer in inside], axis=0
            )
    return found
