"""Which replicas are so small that every expert slot is a variable."""

from __future__ import annotations

from costmodel.question.instance import Instance

#: largest layers x experts x chips x replica counts for which every slot is a variable
SMALL = 3000


def small_enough(instance: Instance, chips: int) -> bool:
    """Whether a replica on stages of so many chips is modelled whole."""
    moe = instance.operations.moe
    if moe is None:
        return instance.operations.num_layers <= 8
    size = len(instance.operations.moe_layers) * moe.num_experts * chips * chips
    return size <= SMALL and instance.operations.num_layers <= 8
