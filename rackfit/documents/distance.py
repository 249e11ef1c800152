"""How far a layout is from anything that was measured, and what staying near it costs."""

from __future__ import annotations

from typing import Any

from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from costmodel.question.measured_shapes import Worker, missing_of, nearest_to, weights_label


def measured_distance(instance: Instance, layout: Layout) -> dict[str, Any]:
    """What of the layout no measured run had, kind of replica by kind of replica, with the nearest runs.

    ``error``: median of the absolute relative error of TPOT of those runs, each predicted without its model.
    """
    kinds: dict[Worker, int] = {}
    for replica in layout.replicas:
        worker = _worker(instance, replica)
        kinds[worker] = kinds.get(worker, 0) + 1
    replicas = [
        {
            "count": count,
            "role": worker.role,
            "chip": worker.chip,
            "tp": worker.tp,
            "attention_dp": worker.attention_dp,
            "pp": worker.pp,
            "sequences_per_rank": worker.sequences,
            "not_measured": missing_of(worker),
            "nearest": [
                {
                    "distance": distance,
                    "chip": one.chip,
                    "engine": one.engine,
                    "weights": one.weights,
                    "role": one.role,
                    "tp": one.tp,
                    "attention_dp": one.attention_dp,
                    "pp": one.pp,
                    "sequences_per_rank": [one.least_sequences, one.most_sequences],
                    "runs": one.runs,
                    "error": one.error,
                }
                for distance, one in nearest_to(worker)
            ],
        }
        for worker, count in kinds.items()
    ]
    absent = dict.fromkeys(name for worker in kinds for name in missing_of(worker))
    return {"not_measured": list(absent), "replicas": replicas}


def _worker(instance: Instance, replica: Replica) -> Worker:
    engine, shape = instance.engine, replica.shape
    sequences = 1 if replica.role == "prefill" else max(replica.rank_sequences(), default=1)
    return Worker(
        chip=instance.cluster.chip(replica.chips[0]).chip.name,
        engine=None if engine is None else engine.engine,
        weights=weights_label(instance.model.native_dtype),
        role=replica.role,
        tp=shape.tp,
        attention_dp=shape.attention_dp,
        pp=shape.pp,
        sequences=float(max(sequences, 1)),
    )
