"""Slurm's nodes as JSON, in the form of data parser 0.0.42: the nodes of ``listings.SCONTROL``."""

from __future__ import annotations

import json
from typing import Any

META = {"plugin": {"type": "", "data_parser": "data_parser/v0.0.42"}, "slurm": {"version": {"major": "24"}}}  # fmt: skip


def node(
    name: str, state: list[str], gres: str = "gpu:h100:8(S:0-1)", **told: Any
) -> dict[str, Any]:
    """A node with the keys that say something; Slurm writes some fifty."""
    number = {"set": True, "infinite": False, "number": 0}
    return {
        "architecture": "x86_64", "boot_time": number, "cpus": 224, "gres": gres, "gres_drained": "N/A",
        "gres_used": "gpu:h100:0(IDX:N/A)", "name": name, "next_state_after_reboot": ["INVALID"], "address": name,
        "hostname": name, "state": state, "partitions": ["gpu"], "reason": "", "reservation": "",
        "tres": "cpu=224,mem=2000G,billing=224,gres/gpu=8,gres/gpu:h100=8", "tres_used": "", **told,
    }  # fmt: skip


def answer(*nodes: dict[str, Any], key: str = "nodes") -> str:
    """What scontrol, sinfo and slurmrestd write around them."""
    return json.dumps({key: nodes, "last_update": {"set": True, "number": 1}, "meta": META, "errors": [], "warnings": []}, indent=1)  # fmt: skip


def scontrol() -> str:
    """One node without GPUs; four of 8 H100: idle, three in use, drained, two in use somewhere."""
    return answer(
        node("cpu-1", ["IDLE"], "", gres_used="", tres="cpu=64,mem=500G,billing=64"),
        node("gpu-1", ["IDLE"]),
        node("gpu-2", ["MIXED"], gres_used="gpu:h100:3(IDX:0-1,5)"),
        node("gpu-3", ["IDLE", "DRAIN"], reason="GPU 3 fell off the bus"),
        node("gpu-10", ["MIXED"], gres_used="", tres_used="cpu=90,mem=700G,gres/gpu=2,gres/gpu:h100=2"),
    )  # fmt: skip
