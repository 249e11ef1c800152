"""What each engine checks when it loads a placement file, re-implemented without the engine.

Sources: SGLang ``srt/eplb/expert_location.py``, TensorRT-LLM ``_torch/modules/fused_moe`` and its
strict ``MoeLoadBalancerConfig``, vLLM-Ascend ``eplb`` loader. Each function returns the problems;
none means the engine loads the file and uses every expert.
"""

from __future__ import annotations

import json
from typing import Any

import yaml


def check_sglang(
    text: str, *, num_layers: int, num_experts: int, spare: int, chips: int
) -> list[str]:
    """Problems of an ``--init-expert-location`` file for a model and ``--ep-num-redundant-experts``."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        return [f"not JSON: {error}"]
    if not isinstance(data, dict) or set(data) != {"physical_to_logical_map"}:
        return ["expected the one key physical_to_logical_map"]
    rows = data["physical_to_logical_map"]
    problems = []
    if not isinstance(rows, list) or len(rows) != num_layers:
        problems.append(f"expected {num_layers} rows (dense layers included)")
    if (num_experts + spare) % chips:
        problems.append(f"{num_experts + spare} slots do not divide over {chips} ranks")
    for index, row in enumerate(rows if isinstance(rows, list) else []):
        problems += _row(f"row {index}", row, num_experts, num_experts + spare, chips)
    return problems


def check_trtllm(text: str, *, layer_ids: list[int], num_experts: int, chips: int) -> list[str]:
    """Problems of a ``load_balancer`` file for a model's MoE layers on ``chips`` ranks."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return [f"not YAML: {error}"]
    known = {"num_slots", "initial_global_assignments", "layer_updates_per_iter"}
    if not isinstance(data, dict) or set(data) != known:
        return [f"expected exactly the keys {sorted(known)}"]
    slots, rows = data["num_slots"], data["initial_global_assignments"]
    if not isinstance(slots, int) or not isinstance(rows, dict):
        return ["num_slots must be a number and initial_global_assignments a mapping"]
    problems = []
    if slots % chips:
        problems.append(f"{slots} slots do not divide over {chips} ranks")
    if slots < num_experts:
        problems.append(f"{slots} slots for {num_experts} experts")
    if data["layer_updates_per_iter"] != 0:
        problems.append("layer_updates_per_iter must be 0 for a static placement")
    for layer in layer_ids:
        if layer not in rows:
            problems.append(f"layer {layer} is missing")
        else:
            problems += _row(f"layer {layer}", rows[layer], num_experts, slots, chips)
    return problems


_TYPES = {"int": int, "float": (int, float), "bool": bool, "str": str}


def trtllm_problems(
    data: dict[str, Any],
    fields: dict[str, Any],
    choices: dict[str, list[str]] | None = None,
    place: str = "",
) -> list[str]:
    """Keys that TensorRT-LLM's strict model does not have, values of another type or of none that it takes."""
    found = []
    for key, value in data.items():
        kind, where = fields.get(key), f"{place}{key}"
        allowed = (choices or {}).get(where)
        if kind is None:
            found.append(f"{where}: no such field")
        elif isinstance(kind, dict):
            found += trtllm_problems(value, kind, choices, f"{where}.")
        elif kind.startswith("list["):
            wanted = _TYPES[kind[5:-1]]
            if not isinstance(value, list) or not all(isinstance(v, wanted) for v in value):
                found.append(f"{where}: expected {kind}")
        elif not isinstance(value, _TYPES[kind]) or (kind == "int" and isinstance(value, bool)):
            found.append(f"{where}: expected {kind}")
        elif allowed is not None and value not in allowed:
            found.append(f"{where}: {value!r} is none of {', '.join(allowed)}")
    return found


def check_vllm_ascend(text: str, *, num_layers: int, num_experts: int, chips: int) -> list[str]:
    """Problems of an ``expert_map_path`` file for a model's MoE layers on ``chips`` devices."""
    try:
        data = json.loads(text)
        layers = data["layer_list"]
        count = data["moe_layer_count"]
        if count != num_layers or len(layers) != num_layers:
            return [f"expected {num_layers} MoE layers, got {count} and {len(layers)} in the list"]
        problems = []
        for index, layer in enumerate(layers):
            if layer["layer_id"] != index or layer["device_count"] != chips:
                problems.append(f"layer {index}: wrong layer_id or device_count")
            devices = layer["device_list"]
            if [device["device_id"] for device in devices] != list(range(chips)):
                problems.append(f"layer {index}: devices must be 0..{chips - 1} in order")
                continue
            held = [device["device_expert"] for device in devices]
            if len({len(experts) for experts in held}) != 1:
                problems.append(f"layer {index}: devices hold different numbers of experts")
                continue
            row = [expert for experts in held for expert in experts]
            problems += _row(f"layer {index}", row, num_experts, len(row), chips)
        return problems
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        return [f"not an expert map: {error!r}"]


def _row(place: str, row: Any, num_experts: int, slots: int, chips: int) -> list[str]:
    """Problems of one layer: length, range, every expert present, none twice on a chip."""
    if not isinstance(row, list) or len(row) != slots:
        return [f"{place}: expected {slots} experts"]
    if any(type(expert) is not int or not 0 <= expert < num_experts for expert in row):
        return [f"{place}: an expert outside 0..{num_experts - 1}"]
    problems = []
    if set(row) != set(range(num_experts)):
        problems.append(f"{place}: {num_experts - len(set(row))} experts have no slot")
    room = slots // chips
    if slots % chips == 0:
        for chip in range(chips):
            if len(set(row[chip * room : (chip + 1) * room])) < room:
                problems.append(f"{place}: an expert is twice on chip {chip}")
    return problems
