"""``gcloud container node-pools list --format=json``: slices of TPUs by machine type and topology."""

from __future__ import annotations

import re
from typing import Any

from rackfit.discovery.document import Document, mapping, sequence
from rackfit.discovery.found import Found
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "gcloud container node-pools list --format=json"

_MACHINE = re.compile(r"(ct\d\w{0,3}|tpu7x)-(?:hightpu|standard)-(\d{1,2})t")


def _pools(data: Any) -> list[dict[str, Any]]:
    data = data if isinstance(data, list) else [data]
    return [pool for pool in map(mapping, data) if mapping(pool.get("config")).get("machineType")]


def recognises(document: Document) -> bool:
    """Objects with a machine type in their config."""
    if '"machineType"' not in document.text[:200_000]:
        return False
    try:
        return bool(_pools(document.data))
    except InstanceError:
        return True  # so that its mistake is told


def read(document: Document) -> Found:
    """Pools of TPU machines, each host of which is named by its pool and its number."""
    found = Found()
    others = 0
    for pool in _pools(document.data):
        name = str(pool.get("name"))
        place = f"{document.place}: {shown(name, 80)}"
        machine = _MACHINE.fullmatch(str(pool["config"]["machineType"]))
        if machine is None:
            others += 1
            continue
        chips = int(machine[2])
        shape = _shape(mapping(pool.get("placementPolicy")).get("tpuTopology"), chips, place, found)
        count = pool.get("initialNodeCount", 1)
        zones = len(sequence(pool.get("locations"))) or 1
        if (
            not isinstance(count, int)
            or isinstance(count, bool)
            or not 0 <= count * zones <= 50_000
        ):
            message = f"expected a number of nodes, got {shown(count, 40)}"
            raise InstanceError(Problem(f"{place}: initialNodeCount", message))
        for number in range(count * zones):
            host = found.host(f"{name}-{number}", document.place)
            host.chips, host.product = chips, machine[1]
            host.domain, host.slice_shape = name, shape
            host.use_told = False
            if pool.get("status") not in (None, "RUNNING", "RECONCILING", "RUNNING_WITH_ERROR"):
                host.out_of_service = f"pool is {shown(pool['status'], 40)}"
        if count:
            found.assumed.append(f"{place}: {count * zones} nodes, as the pool was made with")
    if others:
        found.notes.append(f"{document.place}: {others} pools without TPUs are left out")
    return found


def _shape(text: Any, chips: int, place: str, found: Found) -> tuple[int, ...]:
    """The slice's shape; of a single host that tells none its usual one."""
    if text is None:
        usual = {1: (1, 1), 4: (2, 2), 8: (2, 4)}.get(chips, (1, chips))
        found.assumed.append(f"{place}: no tpuTopology; slices of {'x'.join(map(str, usual))}")
        return usual
    sides = str(text).split("x")
    if len(sides) > 3 or not all(side.isdecimal() and 0 < len(side) < 5 for side in sides):
        message = f"expected a shape such as 4x4x4, got {shown(text, 40)}"
        raise InstanceError(Problem(f"{place}: tpuTopology", message))
    return tuple(int(side) for side in sides)
