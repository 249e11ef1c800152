"""Bytes of KV on the chips of a replica, as its layers and the sequences of its ranks give them."""

from __future__ import annotations

from collections.abc import Iterator

from costmodel.layout.layout import KvTier, Replica, Role
from costmodel.question.instance import Instance
from costmodel.replica.held import cache_bytes, idle_by_rank, idle_bytes, stage_kinds


def in_flight_bytes(instance: Instance, role: Role, layers: tuple[int, int], tp: int) -> float:
    """Bytes on one chip of a rank of one sequence's caches over layers, at its final length."""
    return cache_bytes(instance, stage_kinds(instance, *layers), tp, instance.kept_context(role))


def bytes_by_chip(
    instance: Instance, replica: Replica, known: dict[object, float] | None = None
) -> Iterator[tuple[str, dict[tuple[KvTier, bool], float]]]:
    """Each chip with its bytes by tier and whether they wait, tier by tier; none is left out.

    ``known``: bytes in flight of stages of this question, filled here, for replicas alike.
    """
    known = {} if known is None else known
    in_flight, idle = replica.rank_sequences(), idle_by_rank(replica)
    tp, place = replica.shape.tp, replica.place_in_flight
    for stage in replica.stages:
        key = replica.role, stage.layers, tp
        if key not in known:
            known[key] = in_flight_bytes(instance, *key)
        one = known[key]
        waiting = idle_bytes(instance, stage_kinds(instance, *stage.layers), tp) if idle else 0.0
        for at, chip in enumerate(stage.chips):
            held: dict[tuple[KvTier, bool], float] = {(place, False): one * in_flight[at // tp]}
            held |= {(tier, True): waiting * counts[at // tp] for tier, counts in idle.items()}
            yield chip, held
