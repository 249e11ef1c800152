"""One replica of a given shape on the first chips of a cluster: experts round robin, layers even.

For measured systems and worked examples, where the shape is given and nothing is searched.
"""

from __future__ import annotations

from math import ceil

from costmodel.layout.layout import KvShare, Layout, Replica, Role, Shape, Stage, spread
from costmodel.question.instance import Instance
from topology.errors import InstanceError, Problem


def plain_layout(
    instance: Instance,
    role: Role,
    *,
    tp: int,
    attention_dp: int = 1,
    pp: int = 1,
    batch: int,
    redundant_experts: int = 0,
    first_chip: int = 0,
) -> Layout:
    """The layout of one replica from the ``first_chip``-th usable chip on; ``batch`` over its ranks.

    Slots per chip are the fewest that hold every expert and ``redundant_experts`` copies. Raises
    ``InstanceError`` where the cluster has too few chips.
    """
    operations = instance.operations
    moe = operations.moe
    chips_per_stage = tp * attention_dp
    usable = [chip.id for chip in instance.cluster.usable][first_chip:]
    if len(usable) < chips_per_stage * pp:
        raise InstanceError(
            Problem(
                "cluster", f"{len(usable)} usable chips; the shape needs {chips_per_stage * pp}"
            )
        )
    slots = None
    maps: dict[str, dict[int, tuple[int, ...]]] = {}
    if moe is not None:
        slots = ceil((moe.num_experts + redundant_experts) / chips_per_stage)
        row = tuple(slot % moe.num_experts for slot in range(slots * chips_per_stage))
        maps = {"even": dict.fromkeys(operations.moe_layers, row)}
    stages = []
    first = 0
    for index, count in enumerate(spread(operations.num_layers, pp)):
        stages.append(
            Stage(
                layers=(first, first + count - 1),
                chips=tuple(usable[index * chips_per_stage : (index + 1) * chips_per_stage]),
                slots_per_chip=slots,
                expert_map="even" if moe is not None else None,
            )
        )
        first += count
    homes = stages[0].chips[::tp]
    kv = tuple(
        KvShare(chip=chip, sequences=count)
        for chip, count in zip(homes, spread(batch, attention_dp), strict=True)
    )
    shape = Shape(
        tp=tp,
        ep=chips_per_stage if moe is not None else 1,
        pp=pp,
        attention_dp=attention_dp,
        batch=batch,
    )
    return Layout(
        replicas=(Replica(role=role, shape=shape, stages=tuple(stages), kv=kv),),
        expert_maps=maps,
    )
