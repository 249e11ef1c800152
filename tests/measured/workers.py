"""The workers of a measured row as a layout, so that the evaluator can price them."""

from __future__ import annotations

from costmodel.layout.layout import Layout, Replica, Role
from costmodel.layout.plain_layout import plain_layout
from costmodel.measured.rows import Group, MeasuredRow
from costmodel.question.instance import Instance


def layout_of(row: MeasuredRow, instance: Instance, decode_batch: int) -> Layout:
    """One decode (or mixed) worker at a batch, and one prefill worker where there is such a pool."""
    if row.prefill is None:
        return _worker(instance, row.decode, "mixed", decode_batch, 0)
    decode = _worker(instance, row.decode, "decode", decode_batch, 0)
    prefill = _worker(instance, row.prefill, "prefill", row.prefill.attention_dp, row.decode.chips)
    replicas: tuple[Replica, ...] = (*prefill.replicas, *decode.replicas)
    maps = {f"prefill {name}": found for name, found in prefill.expert_maps.items()}
    renamed = tuple(
        replica.model_copy(
            update={
                "stages": tuple(
                    stage.model_copy(update={"expert_map": f"prefill {stage.expert_map}"})
                    if stage.expert_map
                    else stage
                    for stage in replica.stages
                )
            }
        )
        for replica in prefill.replicas
    )
    replicas = (*renamed, *decode.replicas)
    return Layout(replicas=replicas, expert_maps={**maps, **decode.expert_maps})


def _worker(instance: Instance, group: Group, role: Role, batch: int, after: int) -> Layout:
    """A plain worker; its experts are cut where the row's are."""
    whole = plain_layout(
        instance,
        role,
        tp=group.tp,
        attention_dp=group.attention_dp,
        pp=group.pp,
        batch=batch,
        first_chip=after,
    )
    if instance.operations.moe is None or group.expert_ways > 1:
        return whole
    (replica,) = whole.replicas
    own = {"slots_per_chip": 0, "expert_map": None, "layer_slots": None}
    stages = tuple(stage.model_copy(update=own) for stage in replica.stages)
    shape = replica.shape.model_copy(update={"ep": 1})
    if group.tp * group.attention_dp == 1:
        return whole
    return Layout(replicas=(replica.model_copy(update={"stages": stages, "shape": shape}),))
