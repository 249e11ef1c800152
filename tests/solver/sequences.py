"""Replicas with other numbers of sequences."""

from __future__ import annotations

from costmodel.layout.layout import KvShare, Replica


def with_sequences(replica: Replica, counts: list[int]) -> Replica:
    """The replica with so many sequences on each rank, at home on the rank's first chip."""
    tp, shape = replica.shape.tp, replica.shape
    kv = tuple(
        KvShare(chip=replica.stages[0].chips[rank * tp], sequences=count)
        for rank, count in enumerate(counts)
    )
    return replica.model_copy(
        update={"kv": kv, "shape": shape.model_copy(update={"batch": sum(counts)})}
    )
