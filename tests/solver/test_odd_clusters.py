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
from solver.shapes.pools import pool_classes
from solver.shapes.spans import span_families
from topology import load_cluster

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


def test_pools_are_filled_with_whole_stages_beside_other_spans() -> None:
    classes = pool_classes(load_cluster("hgx-h200@3"))
    (family,) = span_families(classes, 8, 8)
    assert (family.kind, family.filled) == ("none", True)
    assert {tuple(chips for _, chips in parts) for parts in family.spans} == {
        (6, 3), (6, 6, 3), (8, 2), (8, 4), (8, 6), (8, 8, 4),
    }  # fmt: skip
    assert {len(one.spans) for one in span_families(classes, 2, 8)} == {4}
    # with a dead chip, pools of seven come last
    broken = Scenario(model="llama-3.1-8b", cluster="hgx-h200@3", workload="chat", failed=("r2g7",))
    dead = pool_classes(resolve_instance(broken).cluster)
    large, small = (c.index for c in sorted(dead, key=lambda own: -own.size))
    (family,) = span_families(dead, 8, 8)
    assert (family.kind, family.filled) == ("even", True)
    named = {large: "", small: "of seven"}
    found = {
        tuple(sorted((named[index], chips) for index, chips in parts)) for parts in family.spans
    }
    for filled in (
        [("", 4), ("", 8)], [("", 3), ("", 6)], [("", 8), ("", 8), ("of seven", 4)],
        [("", 6), ("", 6), ("of seven", 3)], [("", 6), ("", 6), ("of seven", 6)],
    ):  # fmt: skip
        assert tuple(filled) in found


@pytest.mark.parametrize(
    ("model", "cluster", "workload", "slo"),
    [
        # six stages of two chips: a node and half of another
        ("qwen3-32b", "rtx4090", {"input_tokens": 200, "output_tokens": 500}, {"ttft": 1.0}),
        ("mixtral-8x22b", "rtx4090", {"input_tokens": 1000, "output_tokens": 500}, {"ttft": 3.0, "tpot": 0.08}),
    ],
    ids=["dense", "experts"],
)  # fmt: skip
def test_a_node_more_does_not_cost_more(
    model: str, cluster: str, workload: dict[str, int], slo: dict[str, float]
) -> None:
    """Replicas on a node and a part of another were looked at on two nodes, and not on three."""
    usd = []
    for number in (2, 3, 4):
        question = {
            "model": model, "cluster": f"{cluster}@{number}", "workload": workload, "slo": slo, "pay": "used",
        }  # fmt: skip
        found = search(resolve_instance(Scenario.model_validate(question)), clock=Clock(120))
        assert any(
            "whole stages" in line or "any number" in line for line in found.certificate.covers
        )
        usd.append(found.evaluation.usd_per_m_output_tokens or 0.0)
    assert usd[1] <= usd[0] * (1 + found.certificate.gap)
    assert usd[2] <= usd[1] * (1 + found.certificate.gap)
