"""As vLLM, with Ascend's variable."""

from __future__ import annotations

from tests.rackfit.exporters.counts import count_vllm
from tests.rackfit.exporters.counts.devices import Devices


def count(files: dict[str, str], devices: Devices) -> None:
    """Each process, by the variable that shows it its devices."""
    count_vllm.count(files, devices, visible="ASCEND_RT_VISIBLE_DEVICES")
