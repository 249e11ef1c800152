"""Devices in ``tasks.csv``."""

from __future__ import annotations

import csv
import io

from tests.rackfit.exporters.counts.devices import Devices


def count(files: dict[str, str], devices: Devices) -> None:
    """Each device of each task."""
    for row in csv.DictReader(io.StringIO(files["tasks.csv"])):
        for gpu in row["gpus"].split():
            devices.add(row["role"], row["host"], int(gpu))
