"""A replica from its sizes: stages on chips, and the KV of its sequences on every chip."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.layout.layout import KvShare, Replica, Role, Shape, Stage, spread
from costmodel.question.instance import Instance
from costmodel.replica.kv_bytes import in_flight_bytes


def make_replica(
    instance: Instance,
    role: Role,
    tp: int,
    per_rank: int,
    stages: Sequence[tuple[tuple[int, int], Sequence[str]]],
    slots: tuple[int, ...],
    expert_map: str | None,
) -> Replica:
    """``stages``: first and last layer, and chips rank by rank; all stages use one expert map.

    ``per_rank`` sequences (or prompts) of each attention rank and microbatch; their homes are
    spread over the rank's chips in all stages.
    """
    pp, width = len(stages), len(stages[0][1])
    homes = spread(per_rank * pp, tp * pp)
    shares = []
    for number, (layers, chips) in enumerate(stages):
        one = in_flight_bytes(instance, role, layers, tp, last=number == pp - 1)
        shares += [
            KvShare(
                chip=chip,
                sequences=homes[number * tp + place % tp],
                bytes=one * per_rank * pp,
            )
            for place, chip in enumerate(chips)
        ]
    even = len(set(slots)) == 1
    return Replica(
        role=role,
        shape=Shape(
            tp=tp,
            ep=width if slots else 1,
            pp=pp,
            attention_dp=width // tp,
            batch=per_rank * (width // tp) * pp,
        ),
        stages=tuple(
            Stage(
                layers=layers,
                chips=tuple(chips),
                slots_per_chip=(slots[0] if even else slots) if slots else None,
                expert_map=expert_map,
            )
            for layers, chips in stages
        ),
        kv=tuple(shares),
    )
