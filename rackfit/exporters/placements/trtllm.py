"""TensorRT-LLM's ``moe_config.load_balancer`` file: slots by model layer index, static.

The file is read strictly: ``num_slots``, ``initial_global_assignments`` and
``layer_updates_per_iter`` (0 means the placement is never changed) and no other key.
"""

from __future__ import annotations

from rackfit.exporters.placements.table import AnyTable


def render(table: AnyTable) -> str:
    """The YAML text. Raises ``InstanceError`` for uneven slots or unlike layers."""
    table = table.uniform("TensorRT-LLM")
    lines = [f"num_slots: {table.num_slots}", "initial_global_assignments:"]
    rows = zip(table.layer_ids, table.physical_to_logical.tolist(), strict=True)
    lines += [f"  {layer}: {row}" for layer, row in rows]
    lines.append("layer_updates_per_iter: 0")
    return "\n".join(lines) + "\n"


def hint(table: AnyTable) -> str:
    """How the file is used."""
    return (
        f"trtllm: moe_expert_parallel_size {table.num_chips}, moe_config: "
        "{backend: WIDEEP, load_balancer: FILE}"
    )
