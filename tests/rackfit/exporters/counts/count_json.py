"""Chips of every stage in ``layout.json``, on the hosts that it names."""

from __future__ import annotations

import json

from tests.rackfit.exporters.counts.devices import Devices


def count(files: dict[str, str], devices: Devices) -> None:
    """Each chip of each stage."""
    document = json.loads(files["layout.json"])
    for replica in document["layout"]["replicas"]:
        for stage in replica["stages"]:
            for chip in stage["chips"]:
                place = document["hosts"][chip]
                devices.add(replica["role"], place["host"], place["gpu"])
