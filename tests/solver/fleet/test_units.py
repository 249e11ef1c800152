"""Replicas over several domains stand in one unit of the network where they may, and bounds know it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import yaml

from benchmarks.hunt.neighbours import elsewhere
from costmodel.evaluate import evaluate
from costmodel.question.instance import Instance, Scenario, resolve_instance
from solver.clock import Clock
from solver.fleet.asked import Links, Question, fleet_of
from solver.fleet.beside import beside
from solver.fleet.best import needed, solve_fleet
from solver.fleet.items import Item
from solver.search import search
from solver.shapes.pools import Pool, PoolClass, pool_classes
from topology import load_chip, load_cluster
from topology.catalogue import data_dir
from topology.scaleout.uplinks import Uplinks

CHIP = load_chip("h100")
#: bytes of a chip that holds a third of the model
HBM = 13_274_618_820


def question(folder: Path, sizes: tuple[int, ...], per_unit: int, **asked: Any) -> Instance:
    """A wide MoE model on nodes of so many H100, so many nodes under the same leaves."""
    fabric = {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]}
    domains = [{"fabric": fabric, "chips": [{"chip": "h100", "count": n}]} for n in sizes]
    network = {"kind": "leaf-spine", "domains_per_unit": per_unit, "oversubscription": 8.0}
    path = folder / "units.yaml"
    path.write_text(yaml.safe_dump({"name": "units", "domains": domains, "scale_out": network}))
    scenario = {
        "model": "deepseek-v3", "cluster": str(path), "pay": "used",
        "workload": {"input_tokens": 2000, "output_tokens": 300},
        "slo": {"tpot": 0.08}, "limits": {"max_domains_per_replica": 2}, **asked,
    }  # fmt: skip
    return resolve_instance(Scenario.model_validate(scenario))


@pytest.mark.parametrize(("sizes", "per_unit"), [((1, 8, 8, 8), 2), ((8, 8, 8), 2)])
def test_no_order_of_domains_alike_beats_the_bound(
    sizes: tuple[int, ...], per_unit: int, tmp_path: Path
) -> None:
    instance = question(tmp_path, sizes, per_unit)
    found = search(instance, clock=Clock(60))
    assert found.certificate.gap <= 0.01
    bound = found.certificate.bound_usd_per_m_output_tokens
    orders = list(elsewhere(instance.cluster, found.layout, Random(0)))
    assert len(orders) >= 6
    for _, layout in orders:
        judged = evaluate(instance, layout)
        if not judged.violations:
            assert judged.usd_per_m_output_tokens is not None
            assert judged.usd_per_m_output_tokens >= bound * (1 - 1e-9)


def stand(slices: int, pools: tuple[Pool, ...]) -> tuple[Item, tuple[Pool, ...]]:
    return Item(0, 1, 0, slices, 4, 1.0), pools


def test_pools_that_replicas_share_are_put_into_one_unit() -> None:
    pools = tuple(Pool(d, CHIP, tuple(f"r{d}g{p}" for p in range(8))) for d in range(6))
    classes = (PoolClass(0, CHIP, 8, pools, (CHIP.usd_per_hour,) * 8),)
    unit_of = [0, 0, 0, 1, 1, 2]
    apart = [
        stand(1, (pools[0],)), stand(2, (pools[1], pools[2])),
        stand(2, (pools[2], pools[3])), stand(2, (pools[4], pools[5])),
    ]  # fmt: skip
    close = beside(apart, classes, unit_of)
    assert [item for item, _ in close] == [item for item, _ in apart]
    units = [{unit_of[pool.domain] for pool in own} for _, own in close]
    assert units[1:] == [{0}, {0}, {1}]
    assert [len(set(own)) for _, own in close] == [1, 2, 2, 2]
    assert len({pool for _, own in close for pool in own}) == 6
    within = [stand(2, (pools[0], pools[2])), stand(2, (pools[3], pools[4]))]
    assert beside(within, classes, unit_of) == within
    four = beside([stand(4, pools[2:6])], classes, unit_of)
    assert len({unit_of[pool.domain] for pool in four[0][1]}) == 2


def test_replicas_over_many_domains_of_one_chip_fill_what_the_relaxation_did_not_name() -> None:
    """Of nine domains the best prefill takes four and the best decode eight; four and five serve together."""
    pools = tuple(Pool(d, CHIP, (f"r{d}g0",)) for d in range(9))
    classes = (PoolClass(0, CHIP, 1, pools, (CHIP.usd_per_hour,)),)
    prefill = [Item(n, 0, 0, n, 1, rate) for n, rate in ((4, 400.0), (5, 480.0))]
    decode = [Item(n, 1, 0, n, 1, rate) for n, rate in ((4, 8.0), (5, 15.0), (8, 32.0))]
    links = Links(Uplinks(np.full(9, 50.0), np.full(9, 50.0), np.arange(9)), 1.0)
    answer = solve_fleet(
        [*prefill, *decode], classes, Question(False, 9 * CHIP.usd_per_hour, None, links),
        clock=Clock(), time_limit_s=20, seed=0,
    )  # fmt: skip
    assert answer.fleet is not None
    assert answer.fleet.requests_per_s == pytest.approx(15.0)
    assert sorted(item.slices for item, _ in answer.fleet.stands) == [4, 5]


def test_replicas_whose_passes_send_more_than_links_carry_are_not_the_last(tmp_path: Path) -> None:
    """The first replicas span two domains, of which one has slow NICs."""
    chip = yaml.safe_load((data_dir("chips") / "rubin-ultra.yaml").read_text())
    (tmp_path / "small.yaml").write_text(
        yaml.safe_dump({**chip, "name": "small", "hbm_bytes": HBM})
    )
    domains = [
        {
            "fabric": {"kind": "nvswitch", "links_per_switch": [1] * 36},
            "chips": [{"chip": "./small.yaml", "count": 3, "nic_bytes_per_s": rate}],
        }
        for rate in (1.43e10, 9.8e8)
    ]
    path = tmp_path / "slow.yaml"
    network = {"kind": "leaf-spine"}
    path.write_text(yaml.safe_dump({"name": "slow", "domains": domains, "scale_out": network}))
    asked = {
        "model": "qwen3-8b", "cluster": str(path), "pay": "used", "profile": "physics",
        "workload": {"input_tokens": 5007, "output_tokens": 120}, "kv_dtype": "bf16",
        "slo": {"tpot": 0.00935, "ttft": 0.493},
    }  # fmt: skip
    instance = resolve_instance(Scenario.model_validate(asked))
    found = search(instance, clock=Clock(10))
    assert evaluate(instance, found.layout).violations == ()


def test_a_cluster_in_one_unit_has_its_profile(tmp_path: Path) -> None:
    cluster = question(tmp_path, (8, 8, 8), 2, profile="physics").cluster
    assert cluster.in_one_unit.profile == "physics"
    assert cluster.with_profile("calibrated").in_one_unit.profile == "calibrated"
    crossing = ("r0g0", "r2g0")
    assert cluster.rate("send", crossing).far_bytes_per_byte == 1.0
    assert cluster.in_one_unit.rate("send", crossing).far_bytes_per_byte == 0.0


def test_a_fleet_has_no_replica_that_its_rate_does_not_need() -> None:
    """Fillings of whole pools bring more than a small rate wants; what it wants stays."""
    classes = pool_classes(load_cluster("hgx-h200"))
    pools = (classes[0].pools[0],)
    mixed, prefill, decode = (
        Item(0, 2, 0, 1, 1, 100.0), Item(1, 0, 0, 1, 2, 50.0), Item(2, 1, 0, 1, 1, 60.0),
    )  # fmt: skip
    full = fleet_of([(item, pools) for item in (mixed, mixed, mixed, prefill, decode)], classes)
    for rate, wanted in (
        (90.0, [0]),
        (130.0, [0, 0]),
        (310.0, [0, 0, 0, 1, 2]),
        (None, [0, 0, 0, 1, 2]),
    ):
        found = needed(full, classes, Question(False, 10.0, rate))
        assert sorted(item.shape for item, _ in found.stands) == wanted
