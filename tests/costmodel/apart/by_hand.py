"""Layouts with experts apart, written by hand on one switched domain."""

from __future__ import annotations

from costmodel.layout.layout import Apart, KvShare, Layout, Replica, Shape, Stage, spread
from costmodel.question.instance import Instance


def lying(
    instance: Instance, attention: list[str], experts: list[str], *, batches: int, per_rank: int
) -> Layout:
    """One decode replica, a rank to each chip of attention, every expert once."""
    moe = instance.operations.moe
    assert moe is not None
    layers = (0, instance.operations.num_layers - 1)
    slots = tuple(spread(moe.num_experts, len(experts)))
    return Layout(
        replicas=(
            Replica(
                role="decode",
                shape=Shape(
                    tp=1, ep=len(experts), pp=1, attention_dp=len(attention),
                    batch=per_rank * len(attention),
                ),
                stages=(Stage(layers=layers, chips=tuple(attention)),),
                kv=tuple(KvShare(chip=chip, sequences=per_rank) for chip in attention),
                apart=Apart(
                    microbatches=batches,
                    experts=Stage(
                        layers=layers, chips=tuple(experts), slots_per_chip=slots, expert_map="m"
                    ),
                ),
            ),
        ),
        expert_maps={"m": dict.fromkeys(instance.operations.moe_layers, tuple(range(moe.num_experts)))},
    )  # fmt: skip
