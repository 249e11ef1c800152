"""Devices of the MPI tasks that ``commands.sh`` starts; roles from ``disaggregated.yaml``."""

from __future__ import annotations

import yaml
from launch_lines import mpi_tasks, read_lines

from tests.rackfit.exporters.counts.devices import Devices


def count(files: dict[str, str], devices: Devices) -> None:
    """Each task by the pool of its server."""
    front = yaml.safe_load(files.get("disaggregated.yaml", "{}"))
    pools = {
        url: role
        for key, role in (("context_servers", "prefill"), ("generation_servers", "decode"))
        for url in front.get(key, {}).get("urls", [])
    }
    for line in read_lines(files["commands.sh"]):
        tasks = mpi_tasks(line)
        for host, gpu in tasks:
            devices.add(pools.get(f"{tasks[0][0]}:{line.value('--port')}", "mixed"), host, gpu)
