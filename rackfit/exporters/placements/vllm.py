"""vLLM-Ascend's ``expert_map_path`` file: experts by layer and device, MoE layers only.

vLLM itself takes no static placement file; :func:`hint` gives the flags with which it finds its
own placement for the same number of spare slots.
"""

from __future__ import annotations

import json

from rackfit.exporters.placements.table import AnyTable, UnlikeTable


def render(table: AnyTable) -> str:
    """The JSON text; a layer's id is its place among the MoE layers. ``InstanceError`` if uneven.

    The loader reads one layer at a time and counts its slots there, so layers may have unlike numbers;
    it makes each layer one tensor ``[devices, slots]``, so the devices of a layer may not.
    """
    rooms = table.layer_rooms("vLLM-Ascend")
    layers = []
    for index, (row, room) in enumerate(zip(table.rows(), rooms, strict=True)):
        devices = [
            {"device_id": chip, "device_expert": row[chip * room : (chip + 1) * room]}
            for chip in range(table.num_chips)
        ]
        layers.append({"layer_id": index, "device_count": table.num_chips, "device_list": devices})
    return json.dumps({"moe_layer_count": len(layers), "layer_list": layers}) + "\n"


def hint(table: AnyTable) -> str:
    """How the file is used, and what upstream vLLM takes in its place."""
    if isinstance(table, UnlikeTable):
        return (
            "vllm-ascend: additional_config.eplb_config.expert_map_path FILE, without dynamic_eplb; "
            "upstream vLLM loads no placement file and has one number of slots for all layers"
        )
    config = json.dumps({"num_redundant_experts": table.num_slots - table.num_experts})
    return (
        "vllm-ascend: additional_config.eplb_config.expert_map_path FILE; "
        "upstream vLLM loads no placement file, its own balancer with these slots is: "
        f"--enable-expert-parallel --enable-eplb --eplb-config '{config}'"
    )
