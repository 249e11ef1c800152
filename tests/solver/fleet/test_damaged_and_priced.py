"""Clusters with broken NICs, leaves and uneven NICs, and with two prices for one type of chip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from costmodel.evaluate import evaluate
from costmodel.question.instance import Instance, Scenario, resolve_instance
from solver.answer import SearchResult
from solver.clock import Clock
from solver.search import search
from solver.shapes.pools import pick_chips
from topology import load_cluster
from topology.errors import InstanceError

NODE: dict[str, Any] = {
    "rack": "node",
    "fabric": {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]},
    "chips": [{"chip": "h100", "count": 8}],
}


def question(folder: Path, name: str, *, pay: str = "whole", **cluster: Any) -> Instance:
    """A chat question on a cluster of nodes."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"name": name, "scale_out": {"kind": "leaf-spine"}, **cluster}))
    asked = {
        "model": "gpt-oss-120b",
        "cluster": str(path),
        "workload": {"input_tokens": 4000, "output_tokens": 500},
        "slo": {"tpot": 0.03, "ttft": 3.0},
        "pay": pay,
    }
    return resolve_instance(Scenario.model_validate(asked))


def solved(instance: Instance) -> SearchResult:
    """The answer, which the judge accepts and whose bound lies below it."""
    found = search(instance, clock=Clock(60))
    judged = evaluate(instance, found.layout)
    assert judged.violations == ()
    assert judged.usd_per_m_output_tokens is not None
    bound = found.certificate.bound_usd_per_m_output_tokens
    assert bound <= judged.usd_per_m_output_tokens * (1 + 1e-9)
    assert found.certificate.gap <= 0.01
    return found


def cost(found: SearchResult) -> float:
    """Dollars per million output tokens of an answer."""
    assert found.evaluation.usd_per_m_output_tokens is not None
    return found.evaluation.usd_per_m_output_tokens


@pytest.mark.parametrize(
    ("failed", "network"),
    [
        (["r0g5.nic"], {"kind": "leaf-spine"}),
        (["leaf0"], {"kind": "leaf-spine"}),
        (["leaf0"], {"kind": "rail-optimised"}),
        (["r0g*.nic", "r1g*.nic"], {"kind": "leaf-spine"}),
        (["spine*"], {"kind": "leaf-spine"}),
    ],
    ids=str,
)
def test_a_broken_nic_rules_out_replicas_that_need_it(
    failed: list[str], network: dict[str, Any], tmp_path: Path
) -> None:
    nodes = {"domains": [{**NODE, "count": 2}], "scale_out": network}
    found = solved(question(tmp_path, "broken", failed=failed, **nodes))
    assert found.evaluation.chips_used == 16
    whole = solved(question(tmp_path, "whole", **nodes))
    assert cost(found) >= cost(whole) * (1 - whole.certificate.gap - 1e-9)


def test_chips_without_a_switch_in_common_serve_apart(tmp_path: Path) -> None:
    failed = ["r0g0--r0sw[012]", "r0g1--r0sw[13]", "r0g1--r0sw2"]
    instance = question(tmp_path, "apart", domains=[NODE], failed=failed)
    found = search(instance, clock=Clock(60))
    assert evaluate(instance, found.layout).violations == ()
    # the two stand beside chips that both of their switches reach: with each other they would be left out
    assert found.evaluation.chips_used == 8
    plain = instance.scenario.model_copy(update={"profile": "physics"})
    assert solved(resolve_instance(plain)).evaluation.chips_used >= 6


def test_slices_of_one_chip_serve_and_are_paid(tmp_path: Path) -> None:
    slice_of_one = {
        "rack": "slice", "fabric": {"kind": "torus", "shape": [1, 1]},
        "chips": [{"chip": "tpu-v6e", "count": 1}],
    }  # fmt: skip
    node = {**NODE, "chips": [{"chip": "h100", "count": 2}]}
    path = tmp_path / "ones.yaml"
    domains = [slice_of_one, slice_of_one, node]
    path.write_text(
        yaml.safe_dump({"name": "ones", "domains": domains, "scale_out": {"kind": "leaf-spine"}})
    )
    asked = {
        "model": "llama-3.1-8b", "cluster": str(path), "slo": {"tpot": 0.05},
        "workload": {"input_tokens": 500, "output_tokens": 200},
    }  # fmt: skip
    found = solved(resolve_instance(Scenario.model_validate({**asked, "pay": "whole"})))
    used = {chip for replica in found.layout.replicas for chip in replica.chips}
    assert used == {"r0g0", "r1g0", "r2g0", "r2g1"}


def test_a_replica_over_nodes_stands_on_the_fast_nics(tmp_path: Path) -> None:
    chips = [
        {"chip": "h100", "count": 4, "nic_bytes_per_s": "0.1 GB/s"},
        {"chip": "h100", "count": 4},
    ]
    cluster = question(tmp_path, "slow", domains=[{**NODE, "count": 2, "chips": chips}]).cluster
    free = [placed.id for placed in cluster.domains[1].chips]
    assert pick_chips(cluster, 1, free, 3, leaving=True) == ["r1g4", "r1g5", "r1g6"]
    assert pick_chips(cluster, 1, free, 5, leaving=True) == ["r1g0", *free[4:]]
    assert pick_chips(cluster, 1, free, 3) == ["r1g0", "r1g1", "r1g2"]


def test_two_prices_for_one_chip_type_in_a_domain(tmp_path: Path) -> None:
    def node(*prices: float) -> list[dict[str, Any]]:
        return [
            {**NODE, "chips": [{"chip": "h100", "count": 4, "usd_per_hour": p} for p in prices]}
        ]

    mixed = question(tmp_path, "mixed", pay="used", domains=node(3.0, 2.0))
    found = solved(mixed)
    prices = {
        mixed.cluster.chip(chip).chip.usd_per_hour
        for replica in found.layout.replicas
        for chip in replica.chips
    }
    cheap = solved(question(tmp_path, "cheap", pay="used", domains=node(2.0, 2.0)))
    dear = solved(question(tmp_path, "dear", pay="used", domains=node(3.0, 3.0)))
    assert 2.0 in prices
    assert cost(cheap) * 0.99 <= cost(found) <= cost(dear) * 1.01
    four = solved(question(tmp_path, "four", pay="used", domains=node(2.0)))
    assert cost(found) <= cost(four) * 1.01
    whole = [
        solved(question(tmp_path, name, domains=node(*both)))
        for name, both in (("a", (3.0, 2.0)), ("b", (2.5, 2.5)))
    ]
    assert cost(whole[0]) == pytest.approx(cost(whole[1]), rel=0.01)


def test_two_chip_files_with_one_name_are_refused(tmp_path: Path) -> None:
    chip = {
        "name": "twin", "vendor": "test", "flops_per_s": {"bf16": 1e14}, "hbm_bytes": 8e10,
        "hbm_bytes_per_s": 2e12, "scale_up_bytes_per_s": 4e11, "nic_bytes_per_s": 5e10,
        "power_w": 500.0, "usd_per_hour": 2.0, "price_basis": "test",
    }  # fmt: skip
    names = []
    for number, more in enumerate(({}, {"hbm_bytes": 4e10}, {"usd_per_hour": 1.0})):
        names.append(tmp_path / f"twin{number}.yaml")
        names[-1].write_text(yaml.safe_dump({**chip, **more}))

    def cluster(*chips: Path) -> str:
        path = tmp_path / "cluster.yaml"
        rows = [{"chip": str(name), "count": 2} for name in chips]
        fabric = {"kind": "nvswitch", "links_per_switch": [1]}
        path.write_text(
            yaml.safe_dump({"name": "c", "domains": [{"fabric": fabric, "chips": rows}]})
        )
        return str(path)

    with pytest.raises(InstanceError, match="two different chips are called 'twin'"):
        load_cluster(cluster(names[0], names[1]))
    assert len(load_cluster(cluster(names[0], names[2])).chips) == 4
