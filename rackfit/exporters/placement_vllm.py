"""vLLM-Ascend's ``expert_map_path`` file: experts by layer and device, MoE layers only.

vLLM itself takes no static placement file; :func:`hint` gives the flags with which it finds its
own placement for the same number of spare slots.
"""

from __future__ import annotations

import json

from rackfit.exporters.placement_table import PlacementTable

NAME = "vllm"


def render(table: PlacementTable) -> str:
    """The JSON text; a layer's id is its place among the MoE layers. ``InstanceError`` if uneven."""
    room = table.even_slots("vLLM-Ascend")
    layers = []
    for index, row in enumerate(table.physical_to_logical.tolist()):
        devices = [
            {"device_id": chip, "device_expert": row[chip * room : (chip + 1) * room]}
            for chip in range(table.num_chips)
        ]
        layers.append({"layer_id": index, "device_count": table.num_chips, "device_list": devices})
    return json.dumps({"moe_layer_count": len(layers), "layer_list": layers}) + "\n"


def hint(table: PlacementTable) -> str:
    """How the file is used, and what upstream vLLM takes in its place."""
    config = json.dumps({"num_redundant_experts": table.num_slots - table.num_experts})
    return (
        "vllm-ascend: additional_config.eplb_config.expert_map_path FILE; "
        "upstream vLLM loads no placement file, its own balancer with these slots is: "
        f"--enable-expert-parallel --enable-eplb --eplb-config '{config}'"
    )
