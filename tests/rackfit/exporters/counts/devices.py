"""Devices that an export's files take, by role and rack."""

from __future__ import annotations

from collections import Counter

from rackfit.documents.result import Result
from rackfit.exporters.launch.hosts import Hosts

#: (role, rack) and device of every chip; the device is what tells two chips apart
Found = Counter[tuple[str, str]]


class Devices:
    """Counts devices by role and rack; one that is taken twice or is on no host fails."""

    def __init__(self, result: Result):
        hosts = Hosts(result.instance.cluster)
        self.racks = {(place.host, place.gpu): place.rack for place in hosts.places.values()}
        self.found: Found = Counter()
        self.taken: set[tuple[str, int]] = set()

    def add(self, role: str, host: str, gpu: int) -> None:
        """One device of a server."""
        assert (host, gpu) not in self.taken
        self.taken.add((host, gpu))
        self.found[role, self.racks[host, gpu]] += 1
