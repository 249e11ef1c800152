"""Where only the NICs of chips differ, the replicas whose passes send most get the fastest."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import yaml

from costmodel.question.instance import Scenario, resolve_instance
from solver.fleet.asked import Fleet
from solver.fleet.items import Item
from solver.place.assemble import _chips, _rank
from solver.shapes.pools import Pool
from topology import load_chip

FAST, SLOW = 5e10, 1e9


def item(row: int, sent: float) -> Item:
    """A decode replica on two chips of each of two domains, which sends so many bytes/s out of each."""
    return Item(row, 1, 0, 2, 2, 1.0, sent=(sent, sent))


def test_replicas_that_send_most_get_the_fastest_nics(tmp_path: Path) -> None:
    fabric = {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]}
    chips = [{"chip": "h100", "count": 2, "nic_bytes_per_s": rate} for rate in (SLOW, FAST)]
    path = tmp_path / "nics.yaml"
    network = {"kind": "leaf-spine"}
    domains = [{"fabric": fabric, "chips": chips, "count": 2}]
    path.write_text(yaml.safe_dump({"name": "nics", "domains": domains, "scale_out": network}))
    asked = {"model": "llama-3.1-8b", "cluster": str(path), "workload": "chat"}
    instance = resolve_instance(Scenario.model_validate(asked))
    nics = (SLOW, SLOW, FAST, FAST)
    pools = tuple(
        Pool(at, load_chip("h100"), tuple(f"r{at}g{n}" for n in range(4))) for at in (0, 1)
    )
    for first, second in ((1e6, 1e9), (1e9, 1e6)):
        fleet = Fleet(((item(0, first), pools), (item(1, second), pools)), 1.0, 1.0)
        order = [at for _, at in sorted((_rank(instance, fleet, at), at) for at in (0, 1))]
        chosen = _chips(instance, fleet, order, cast(Any, None))
        rates = [[nics[int(chip[-1])] for part in chosen[at] for chip in part] for at in (0, 1)]
        most = int(second > first)
        assert rates[most] == [FAST] * 4
        assert rates[1 - most] == [SLOW] * 4
