"""Replicas of two groups from shapes."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.layout.layout import Apart, Replica, Shape, Stage
from costmodel.question.instance import Instance
from solver.place.build import kv_shares


def build_apart(
    instance: Instance,
    shape: dict[str, int],
    sequences: Sequence[int],
    slots: tuple[int, ...],
    chips: Sequence[Sequence[str]],
    expert_map: str,
) -> Replica:
    """A replica of two groups: ``chips`` of attention, rank by rank, and of experts; ``sequences`` of each rank."""
    attention, experts = (tuple(own) for own in chips)
    layers = (0, instance.operations.num_layers - 1)
    stage = Stage(layers=layers, chips=attention)
    even = len(set(slots)) == 1
    return Replica(
        role="decode",
        shape=Shape(
            tp=shape["tp"], ep=len(experts), pp=1, attention_dp=shape["attention_dp"],
            batch=sum(sequences),
        ),
        stages=(stage,),
        kv=kv_shares(instance, "decode", shape["tp"], [stage], sequences),
        apart=Apart(
            microbatches=shape["microbatches"],
            experts=Stage(
                layers=layers, chips=experts, slots_per_chip=slots[0] if even else slots,
                expert_map=expert_map,
            ),
        ),
    )  # fmt: skip
