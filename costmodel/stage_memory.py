"""Bytes in the HBM of every chip of some replicas by kind, their stages side by side in arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from costmodel import memory
from costmodel.instance import Instance
from costmodel.layout import Replica, Stage
from costmodel.serving import Schedule
from costmodel.stage_times import stage_layers

Array = NDArray[np.float64]


def stage_memory(
    instance: Instance, replicas: Sequence[Replica], plans: Sequence[Schedule]
) -> list[list[dict[str, Array]]]:
    """Bytes on each chip by kind ``[chips]``, replica by replica and stage by stage."""
    operations, workload = instance.operations, instance.workload
    stages = [stage for replica in replicas for stage in replica.stages]
    depth = [len(replica.stages) for replica in replicas]
    tp = np.repeat(np.array([float(replica.shape.tp) for replica in replicas]), depth)
    chips = np.array([float(len(stage.chips)) for stage in stages])
    ends = np.cumsum(depth)
    first, last = np.zeros(len(stages), dtype=bool), np.zeros(len(stages), dtype=bool)
    first[ends - depth], last[ends - 1] = True, True
    layers = [(kind, counts) for kind, _, counts in stage_layers(instance, stages)]
    weights = memory.dense_weight_bytes(layers, tp) + _edges(instance, tp, first, last)
    weights = weights + last * memory.draft_weight_bytes(operations, tp, chips)
    slot = memory.expert_slot_bytes(layers) + np.zeros(len(stages))
    prefills = np.repeat([replica.role == "prefill" for replica in replicas], depth)
    cached = np.zeros(len(stages))
    for role, context in ((True, workload.input_tokens), (False, instance.final_context)):
        if np.any(prefills == role):
            own = memory.kv_bytes_per_sequence(operations, layers, tp, context)
            own = own + last * memory.draft_kv_bytes(operations, tp, context)
            cached = np.where(prefills == role, own, cached)
    rows = np.repeat([float(plan.rows()) for plan in plans], depth)
    # only the last stage scores a vocabulary
    sampled = np.where(last, np.repeat([float(plan.sampled()) for plan in plans], depth), 0.0)
    active = memory.activation_bytes(operations, tp, rows, sampled)
    found = []
    first_stage = 0
    for replica in replicas:
        own_stages = slice(first_stage, first_stage + len(replica.stages))
        first_stage = own_stages.stop
        sequences = np.repeat(np.array(replica.rank_sequences(), dtype=float), replica.shape.tp)
        ones = np.ones(replica.shape.chips_per_stage)
        experts = np.zeros((len(replica.stages), len(ones)))
        if operations.moe is not None:
            experts[:] = [stage.slots() for stage in replica.stages]
            experts *= slot[own_stages, None]
            for number, stage in enumerate(replica.stages):
                if stage.layer_slots:
                    experts[number] = _unlike_experts(instance, stage)
        by_kind = {
            "weights": weights[own_stages, None] * ones,
            "experts": experts,
            "kv": cached[own_stages, None] * sequences,
            "activations": active[own_stages, None] * ones,
            "runtime": _runtime(instance, replica),
        }
        by_stage = zip(*by_kind.values(), strict=True)
        found.append([dict(zip(by_kind, own, strict=True)) for own in by_stage])
    return found


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


def _edges(
    instance: Instance, tp: Array, first: NDArray[np.bool_], last: NDArray[np.bool_]
) -> Array:
    """Embedding and head of each stage ``[stages]``."""
    whole = {
        (is_first, is_last): float(
            memory.edge_weight_bytes(instance.operations, 1.0, first=is_first, last=is_last)
        )
        for is_first in (False, True)
        for is_last in (False, True)
    }
    which = zip(first.tolist(), last.tolist(), strict=True)
    return np.array([whole[own] for own in which]) / tp


def _runtime(instance: Instance, replica: Replica) -> Array:
    """Bytes that the engine takes ``[stages, chips]``."""
    names = [[instance.cluster.chip(c).chip.name for c in stage.chips] for stage in replica.stages]
    known = {name: instance.profile.for_chip(name).runtime_bytes for name in set(chain(*names))}
    return np.array([[known[name] for name in own] for own in names], dtype=float)
