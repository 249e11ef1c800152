"""Devices of the processes that ``commands.sh`` starts, by the modes of their servers."""

from __future__ import annotations

from launch_lines import read_lines, servers, sglang_ranks

from tests.rackfit.exporters.counts.devices import Devices


def count(files: dict[str, str], devices: Devices) -> None:
    """Each process by the mode of its server."""
    for group in servers(read_lines(files["commands.sh"])).values():
        mode = "--disaggregation-mode"
        role = group[0].value(mode) if mode in group[0].words else "mixed"
        for host, gpu in sglang_ranks(group):
            devices.add(role, host, gpu)
