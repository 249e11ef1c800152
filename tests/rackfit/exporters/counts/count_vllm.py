"""Devices of the processes that ``commands.sh`` starts; roles by what they do with KV."""

from __future__ import annotations

import json

from launch_lines import Line, read_lines, servers, vllm_ranks

from tests.rackfit.exporters.counts.devices import Devices


def _role(line: Line) -> str:
    config = "--kv-transfer-config"
    said = json.loads(line.value(config))["kv_role"] if config in line.words else "kv_both"
    return {"kv_producer": "prefill", "kv_consumer": "decode", "kv_both": "mixed"}[said]


def count(files: dict[str, str], devices: Devices, visible: str = "CUDA_VISIBLE_DEVICES") -> None:
    """Each process, by the variable that shows it its devices."""
    for group in servers(read_lines(files["commands.sh"])).values():
        for host, gpu in vllm_ranks(group, visible).values():
            devices.add(_role(group[0]), host, gpu)
