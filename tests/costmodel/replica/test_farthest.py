"""KV goes to the farthest decode replica: one chip stands for all that are reached in the same time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import yaml

from costmodel.question.instance import Instance, Scenario, resolve_instance
from costmodel.replica.fleet import _Transfers, transfer_bytes_per_chip
from costmodel.replica.hand_over import gate, send_s


def question(folder: Path, rng: np.random.Generator) -> Instance:
    """Domains of two kinds in units, with unlike NICs, and chips, NICs and spines that failed."""
    chips = [
        [{"chip": "h100", "count": 2, "nic_bytes_per_s": float(rate)} for rate in rates]
        for rates in rng.choice([1e9, 2e10, 5e10], size=(2, 2))
    ]
    fabric = {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]}
    count = int(rng.integers(3, 9))
    domains = [{"fabric": fabric, "chips": chips[int(rng.integers(2))]} for _ in range(count)]
    network = {
        "kind": "leaf-spine", "domains_per_unit": int(rng.choice([1, 2, 3])), "spines": 2,
        "rails": int(rng.choice([1, 2])), "oversubscription": float(rng.choice([1.0, 4.0])),
    }  # fmt: skip
    failed = [f"r{int(rng.integers(count))}g{int(rng.integers(4))}.nic", f"r{count - 1}g0"]
    if rng.random() < 0.5:
        failed.append("leaf0--spine1")
    path = folder / "farthest.yaml"
    path.write_text(
        yaml.safe_dump(
            {"name": "farthest", "domains": domains, "scale_out": network, "failed": failed}
        )
    )
    asked = {"model": "llama-3.1-8b", "cluster": str(path), "workload": "chat"}
    return resolve_instance(Scenario.model_validate(asked))


@pytest.mark.parametrize("seed", range(60))
def test_one_chip_stands_for_those_reached_in_the_same_time(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    instance = question(tmp_path, rng)
    cluster = instance.cluster

    def replica(role: str, home: int) -> Any:
        own = [placed.id for placed in cluster.domains[home].chips if placed.healthy]
        own = own[:1] if role == "prefill" else own[1:]
        stage = SimpleNamespace(chips=own)
        return SimpleNamespace(
            role=role, chips=tuple(own), kv_chips=tuple(own), stages=[stage],
            shape=SimpleNamespace(tp=1, pp=1),
        )  # fmt: skip

    homes = range(len(cluster.domains))
    prefill = [replica("prefill", home) for home in homes if rng.random() < 0.6]
    decode = [replica("decode", home) for home in homes if rng.random() < 0.7]
    layout = SimpleNamespace(replicas=[*prefill, *decode])
    transfers = _Transfers(instance, cast(Any, layout))
    moved = transfer_bytes_per_chip(instance, 1, 1)
    for one in prefill:
        (home,) = transfers.homes(one.chips)
        gates = {
            next(iter(transfers.homes(other.chips))): gate(cluster, other.chips) for other in decode
        }
        targets = [found[0] for at, found in gates.items() if at != home and found is not None]
        expected = send_s(cluster, gate(cluster, one.chips), targets, moved)
        assert transfers.near_and_far(one)[1] == expected
