"""Links between domains: what they carry, fleets within them, and the search against every fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import yaml

from costmodel.evaluate import evaluate
from costmodel.question.instance import Scenario, resolve_instance
from costmodel.replica.hand_over import Rates, carried
from solver.clock import Clock
from solver.fleet.asked import Links, Question, fleet_of
from solver.fleet.best import solve_fleet
from solver.fleet.items import Item
from solver.search import search
from solver.shapes.pools import Pool, PoolClass
from solver.verify import usd_per_m_output
from tests.solver.fleet.linked import least_cost, make_linked, without_limit
from topology import load_chip
from topology.errors import NoFeasibleLayout
from topology.scaleout.uplinks import Uplinks

CHIP = load_chip("h100")


def flow_network(rates: Rates, room: Uplinks) -> nx.DiGraph[str]:
    """Supply, demand and links as a graph whose greatest flow is what they carry."""
    graph: nx.DiGraph[str] = nx.DiGraph()

    def edge(a: str, b: str, capacity: float) -> None:
        graph.add_edge(a, b, capacity=float(capacity))

    for d, unit in enumerate(room.unit_of.tolist()):
        edge("source", f"p{d}", rates.supply[d])
        edge(f"p{d}", f"d{d}", 1e9)
        edge(f"d{d}", "sink", rates.demand[d])
        edge(f"p{d}", f"e{d}", rates.leaving[d])
        edge("source", f"e{d}", rates.wide_supply[d])
        edge(f"e{d}", f"u{unit}", room.domain[d])
        edge(f"v{unit}", f"i{d}", room.domain[d])
        edge(f"i{d}", f"d{d}", 1e9)
        edge(f"i{d}", "sink", rates.wide_demand[d])
        edge(f"u{unit}", f"v{unit}", 1e9)
        edge(f"u{unit}", "spine", room.unit[unit])
        edge("spine", f"v{unit}", room.unit[unit])
    return graph


def random_links(rng: np.random.Generator, domains: int) -> Uplinks:
    units = int(rng.integers(1, domains + 1))
    unit_of = np.sort(np.r_[np.arange(units), rng.integers(0, units, domains - units)])
    room = rng.choice([0.0, 0.5, 1.0, 3.0], domains) * rng.uniform(0.5, 2.0, domains)
    return Uplinks(room, rng.uniform(0.0, 3.0, units), unit_of)


def test_what_links_carry_is_the_greatest_flow() -> None:
    rng = np.random.default_rng(1)
    bound = 0
    for _ in range(300):
        domains = int(rng.integers(1, 6))
        supply, demand, wide_in, wide_out = (
            rng.uniform(0.0, 2.0, domains) * rng.integers(0, 2, domains) for _ in range(4)
        )
        leaving = supply * rng.choice([0.0, 0.5, 1.0], domains)
        rates = Rates(supply, leaving, demand, wide_in, wide_out)
        room = random_links(rng, domains)
        found = carried(rates, room)
        most, _ = nx.maximum_flow(flow_network(rates, room), "source", "sink")
        assert found.requests_per_s == pytest.approx(most, abs=1e-9)
        pooled = min(supply.sum() + wide_in.sum(), demand.sum() + wide_out.sum())
        bound += found.requests_per_s < pooled * (1 - 1e-9)
        assert np.all(found.out <= room.domain + 1e-12)
        assert np.all(found.into <= room.domain + 1e-12)
        assert np.all(found.unit_out <= room.unit + 1e-12)
        assert np.all(found.unit_into <= room.unit + 1e-12)
        assert found.out.sum() == pytest.approx(found.into.sum())
        assert found.unit_out.sum() == pytest.approx(found.unit_into.sum())
    assert bound > 100


def random_question(
    rng: np.random.Generator,
) -> tuple[list[Item], tuple[PoolClass, ...], Question]:
    """Pools of one or two classes with links, and items of every kind on them."""
    sizes = [[2, 2], [2, 2, 2], [2, 3], [3, 3], [1, 1, 2]][int(rng.integers(5))]
    classes = []
    for index, size in enumerate(sorted(set(sizes))):
        own = tuple(
            Pool(d, CHIP, tuple(f"r{d}g{p}" for p in range(size)))
            for d, other in enumerate(sizes)
            if other == size
        )
        classes.append(PoolClass(index, CHIP, size, own, (CHIP.usd_per_hour,) * size))
    room = random_links(rng, len(sizes))
    for pool_class in classes:  # pools of a class have the same links
        for pool in pool_class.pools:
            room.domain[pool.domain] = room.domain[pool_class.domain]
    items: list[Item] = []
    for pool_class in classes:
        for role in range(3):
            chips = int(rng.integers(1, pool_class.size + 1))
            leaves = bool(rng.random() < 0.7)
            rate = float(rng.uniform(0.5, 2.0)) * chips * (1.0, 1.0, 0.3)[role]
            items.append(Item(len(items), role, pool_class.index, 1, chips, rate, (), leaves))
        if len(pool_class.pools) > 1:
            sent = float(rng.uniform(0.0, 0.4))
            rate = float(rng.uniform(2.0, 5.0))
            items.append(
                Item(
                    len(items), int(rng.integers(3)), pool_class.index, 2, 1, rate, (), True,
                    (sent, sent), (sent / 2, sent / 2),
                )
            )  # fmt: skip
    whole = bool(rng.integers(2))
    # with little KV, passes send more than the KV of any fleet's requests would be
    kv_bytes = float(rng.choice([1.0, 0.05]))
    question = Question(whole, CHIP.usd_per_hour * sum(sizes), None, Links(room, kv_bytes))
    return items, tuple(classes), question


def every_fleet(
    items: list[Item], classes: tuple[PoolClass, ...]
) -> Iterator[list[tuple[Item, tuple[Pool, ...]]]]:
    """Every way to stand items on pools."""
    places = []
    for item in items:
        pools = classes[item.pool_class].pools
        for chosen in product(pools, repeat=item.slices):
            domains = [pool.domain for pool in chosen]
            if domains == sorted(set(domains)):
                places.append((item, chosen))

    def stand(start: int, free: Counter[int]) -> Iterator[list[tuple[Item, tuple[Pool, ...]]]]:
        for index in range(start, len(places)):
            item, pools = places[index]
            left = free.copy()
            for pool in pools:
                left[pool.domain] -= item.slice_chips
            if min(left.values()) >= 0:
                yield [(item, pools)]
                for rest in stand(index, left):
                    yield [(item, pools), *rest]

    yield from stand(0, Counter({p.domain: c.size for c in classes for p in c.pools}))


def compare(seeds: range) -> None:
    """The fleet model's best and bound against every fleet, by what links carry."""
    verdicts: Counter[str] = Counter()
    for seed in seeds:
        items, classes, question = random_question(np.random.default_rng(seed))
        free = question.links
        assert free is not None
        least = loose = float("inf")
        for stands in every_fleet(items, classes):
            least = min(least, question.cost_of(fleet_of(stands, classes, free)))
            loose = min(loose, question.cost_of(fleet_of(stands, classes)))
        answer = solve_fleet(items, classes, question, clock=Clock(), time_limit_s=20, seed=0)
        if least == float("inf"):
            assert answer.fleet is None or question.cost_of(answer.fleet) == least
            continue
        assert answer.bound <= least * (1 + 1e-6), seed
        assert answer.fleet is not None
        cost = question.cost_of(answer.fleet)
        assert cost >= least * (1 - 1e-9)
        verdicts["binds"] += loose < least * (1 - 1e-9)
        verdicts["best"] += cost <= least * (1 + 1e-6)
        verdicts["all"] += 1
    print(dict(verdicts))
    assert verdicts["binds"] >= 0.3 * verdicts["all"]
    assert verdicts["best"] >= 0.97 * verdicts["all"]


def test_best_fleet_within_links_equals_brute_force() -> None:
    compare(range(40))


def test_links_of_domains_alike_count_by_the_unit_they_lie_in() -> None:
    """A domain alone in its unit has that unit's links; one beside others hands over inside the unit, too."""
    pools = [
        Pool(domain, CHIP, tuple(f"r{domain}g{at}" for at in range(size)))
        for domain, size in enumerate((1, 1, 2))
    ]
    classes = (
        PoolClass(0, CHIP, 1, (pools[0], pools[1]), (CHIP.usd_per_hour,)),
        PoolClass(1, CHIP, 2, (pools[2],), (CHIP.usd_per_hour,) * 2),
    )
    links = Links(Uplinks(np.full(3, 9.0), np.array([0.5, 0.5]), np.array([0, 1, 1])), 1.0)
    items = [Item(0, 1, 0, 1, 1, 1.7), Item(1, 2, 0, 1, 1, 0.4), Item(2, 0, 1, 1, 2, 2.0, (), True)]
    answer = solve_fleet(
        items, classes, Question(True, 4 * CHIP.usd_per_hour, None, links),
        clock=Clock(), time_limit_s=20, seed=0,
    )  # fmt: skip
    assert answer.fleet is not None
    assert answer.fleet.requests_per_s == pytest.approx(2.1)
    assert answer.bound == pytest.approx(4 * CHIP.usd_per_hour / 2.1)


@pytest.mark.slow
def test_best_fleet_within_links_equals_brute_force_on_many() -> None:
    compare(range(100, 500))


def solve_and_enumerate(folder: Path, seeds: range) -> Counter[str]:
    """Solve and enumerate; fail unless bound and answer are those of the best fleet there is."""
    found: Counter[str] = Counter()
    for seed in seeds:
        instance = make_linked(folder, seed)
        least = least_cost(instance)
        try:
            result = search(instance, clock=Clock(120), gap=0.0)
        except NoFeasibleLayout:
            assert least is None, seed
            found["infeasible"] += 1
            continue
        assert least is not None, seed
        scale = usd_per_m_output(instance)
        judged = evaluate(instance, result.layout)
        assert judged.violations == ()
        assert judged.usd_per_m_output_tokens is not None
        assert result.certificate.bound_usd_per_m_output_tokens <= least * scale * (1 + 1e-9), seed
        assert judged.usd_per_m_output_tokens == pytest.approx(least * scale, rel=1e-6), seed
        free = least_cost(without_limit(instance))
        assert free is not None
        found["an uplink binds" if free < least * (1 - 1e-6) else "no uplink binds"] += 1
    print(dict(found))
    return found


def test_optimum_equals_enumeration_where_uplinks_bind(tmp_path: Path) -> None:
    assert solve_and_enumerate(tmp_path, range(12, 28))["an uplink binds"] >= 4


@pytest.mark.slow
def test_optimum_equals_enumeration_on_many_where_uplinks_bind(tmp_path: Path) -> None:
    assert solve_and_enumerate(tmp_path, range(700))["an uplink binds"] >= 300


def test_four_h100_and_four_h20_nodes_at_four_speeds_of_nics(tmp_path: Path) -> None:
    costs = []
    for nic in ("50 GB/s", "5 GB/s", "0.5 GB/s", "0.05 GB/s"):
        fabric = {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]}
        nodes = [
            {
                "count": 4,
                "fabric": fabric,
                "chips": [{"chip": chip, "count": 8, "nic_bytes_per_s": nic}],
            }
            for chip in ("h100", "h20")
        ]
        path = tmp_path / "nodes.yaml"
        cluster = {"name": "nodes", "scale_out": {"kind": "leaf-spine"}, "domains": nodes}
        path.write_text(yaml.safe_dump(cluster))
        asked = {
            "model": "llama-3.1-70b",
            "cluster": str(path),
            "workload": {"input_tokens": 16000, "output_tokens": 400},
            "slo": {"tpot": 0.03, "ttft": 20.0},
        }
        instance = resolve_instance(Scenario.model_validate(asked))
        found = search(instance, clock=Clock(60))
        assert found.status == "optimal"
        assert found.certificate.gap <= 0.01
        assert evaluate(instance, found.layout).violations == ()
        assert found.evaluation.usd_per_m_output_tokens is not None
        costs.append(found.evaluation.usd_per_m_output_tokens)
    assert all(slower >= faster * 0.99 for faster, slower in pairwise(costs))
    assert costs[-1] > 1.5 * costs[0]
