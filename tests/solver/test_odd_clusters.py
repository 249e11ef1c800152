"""Clusters as they are: part-taken nodes, dead chips and switches, two chip types. DeepSeek-V3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from costmodel.evaluate import evaluate
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from solver.clock import Clock
from solver.search import search

RACK = {
    "rack": "rack",
    "fabric": {"kind": "nvswitch", "links_per_switch": [1] * 18},
    "chips": [{"chip": "gb200", "count": 72}],
}
NODE = {
    "rack": "node",
    "count": 4,
    "fabric": {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]},
    "chips": [{"chip": "h200", "count": 8}],
}

#: name: cluster file, usable chips, and what the certificate says of replicas over unlike domains
CLUSTERS: dict[str, tuple[dict[str, Any], int, str]] = {
    "14 H200 over 4+4+4+2": (
        {"domains": [NODE], "taken": ["r[012]g[4-7]", "r3g[2-7]"]}, 14,
        "domains of h200 with any number of chips in each, in one stage",
    ),
    "two racks with five chips and a switch dead": (
        {
            "domains": [{**RACK, "count": 2}],
            "failed": ["r0g3", "r0g17", "r0g40", "r1g0", "r1g71", "r1sw4"],
        },
        139, "or over domains that differ in usable chips, links or NICs",
    ),
    "a GB200 rack and four H200 nodes": ({"domains": [RACK, NODE]}, 104, "unequal numbers of chips in several domains"),
    "68 of 72": ({"domains": [RACK], "taken": ["r0g6[89]", "r0g7[01]"]}, 68, "68 chips of a domain"),
}  # fmt: skip


@pytest.mark.parametrize("name", CLUSTERS)
def test_odd_cluster_solves_and_verifies(name: str, tmp_path: Path) -> None:
    spec, usable, says = CLUSTERS[name]
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump({"name": name, "scale_out": {"kind": "leaf-spine"}, **spec}))
    question = {
        "model": "deepseek-v3",
        "cluster": str(path),
        "workload": {"input_tokens": 4000, "output_tokens": 1000},
        "slo": {"ttft": 2.0, "tpot": 0.05},
    }
    instance = resolve_instance(Scenario.model_validate(question))
    healthy = {placed.id for placed in instance.cluster.usable}
    assert len(healthy) == usable
    found = search(instance, clock=Clock(120))
    judged = evaluate(instance, found.layout)
    assert judged.violations == ()
    taken = [chip for replica in found.layout.replicas for chip in replica.chips]
    assert len(set(taken)) == len(taken)
    assert set(taken) <= healthy
    assert len(taken) == usable
    assert judged.usd_per_m_output_tokens is not None
    bound = found.certificate.bound_usd_per_m_output_tokens
    assert 0 < bound <= judged.usd_per_m_output_tokens * (1 + 1e-9)
    assert judged.usd_per_m_output_tokens / bound - 1 == pytest.approx(found.certificate.gap)
    assert found.certificate.gap <= 0.01
    assert any(says in line for line in found.certificate.covers)
    size = {domain.index: len(domain.usable) for domain in instance.cluster.domains}
    spanned = [
        {size[instance.cluster.chip(chip).domain] for chip in replica.chips}
        for replica in found.layout.replicas
    ]
    assert ({2, 4} in spanned) == name.startswith("14"), (
        "only there must domains of unlike size join"
    )
    print(f"{name}: {len(taken)} of {usable} chips, gap {found.certificate.gap:.3%}")


def test_each_chip_type_serves_where_it_is_best(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "name": "mixed",
                "domains": [
                    {**RACK, "chips": [{"chip": "gb200", "count": 8}]},
                    {**NODE, "count": 1},
                ],
                "scale_out": {"kind": "leaf-spine"},
            }
        )
    )
    instance = resolve_instance(
        Scenario.model_validate(
            {
                "model": "gpt-oss-120b",
                "cluster": str(path),
                "workload": "chat",
                "slo": {"tpot": 0.02},
            }
        )
    )
    found = search(instance, clock=Clock(120))
    assert evaluate(instance, found.layout).feasible
    types = [
        {instance.cluster.chip(chip).chip.name for chip in replica.chips}
        for replica in found.layout.replicas
    ]
    assert all(len(own) == 1 for own in types)
    assert {name for own in types for name in own} == {"gb200", "h200"}
