"""A small rate on a large cluster: whole replicas on as few chips as can be, and a bound that knows they are whole."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.question.instance import Instance, Scenario, resolve_instance
from costmodel.question.traffic.description import Arrivals, steady
from costmodel.question.workload import Slo, Workload
from costmodel.replay.targets import Targets
from solver.bounds.apart import cost_per_rate_bound, whole_chips
from solver.clock import Clock
from solver.fleet.asked import Links, Question
from solver.fleet.best import solve_fleet
from solver.fleet.items import Item
from solver.search import search
from solver.shapes.pools import Pool, PoolClass
from solver.traffic.asked import Asked
from solver.traffic.search import search_traffic
from topology import load_chip
from topology.scaleout.uplinks import Uplinks

DEAR, CHEAP = load_chip("h200"), load_chip("h100")


def pools(number: int, size: int) -> tuple[PoolClass, ...]:
    """Two classes of so many pools, one of dearer chips."""
    found = []
    for index, chip in enumerate((CHEAP, DEAR)):
        first = index * number
        own = tuple(
            Pool(d, chip, tuple(f"r{d}g{p}" for p in range(size)))
            for d in range(first, first + number)
        )
        found.append(PoolClass(index, chip, size, own, (chip.usd_per_hour,) * size))
    return tuple(found)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_small_rate_on_many_pools_is_served_as_on_few(seed: int, linked: bool) -> None:
    """More pools than are told apart by themselves do not make what needs one or two of them dearer, or its bound looser."""
    rng = np.random.default_rng(seed)
    items = [
        Item(number, int(rng.integers(0, 3)), index, 1, chips, float(rng.uniform(0.5, 1.0) * chips))
        for number, (index, chips) in enumerate(
            (index, chips) for index in (0, 1) for chips in (1, 2, 3, 5, 8, 13) for _ in range(2)
        )
    ]
    rate = float(rng.uniform(2.0, 9.0))
    many, few = pools(12, 72), pools(2, 72)
    narrow = Uplinks(np.full(24, 50.0), np.full(24, 50.0), np.arange(24)) if linked else None
    links = None if narrow is None else Links(narrow, 1.0)
    asked = Question(False, 1e4, rate, links)
    found = solve_fleet(items, many, asked, clock=Clock(), time_limit_s=20, seed=0)
    alone = solve_fleet(items, few, Question(False, 1e4, rate), clock=Clock(), time_limit_s=20, seed=0)  # fmt: skip
    assert found.fleet is not None
    assert alone.fleet is not None
    assert asked.cost_of(found.fleet) == pytest.approx(asked.cost_of(alone.fleet), rel=1e-6)
    assert found.bound == pytest.approx(asked.cost_of(found.fleet), rel=1e-4)


def test_a_rate_that_one_chip_serves_is_bounded_by_one_chip() -> None:
    one = Item(0, 2, 0, 1, 1, 7.0)
    (cheap, _) = pools(12, 72)
    assert cost_per_rate_bound([one], [cheap], rate=2.0) == pytest.approx(CHEAP.usd_per_hour / 2.0)


def question(model: str, cluster: str, tokens: tuple[int, int], slo: Slo, rate: float) -> Instance:
    workload = Workload(input_tokens=tokens[0], output_tokens=tokens[1])
    asked = Scenario(model=model, cluster=cluster, workload=workload, slo=slo, rate=rate)
    return resolve_instance(asked)


@pytest.mark.parametrize(
    ("asked", "chips"),
    [
        # one chip of each kind on nine racks: two had been taken, one for prompts and one for answers
        (("llama-4-scout-fp8-dynamic", "nvl@9", (2000, 128), Slo(ttft=2.0, tpot=0.1), 10.0), 1),
        # a chip of the cheaper kind does not serve it
        (("gpt-oss-20b", "gb200-vr-nvl72@9", (32000, 128), Slo(ttft=5.0, tpot=0.1), 5.0), 1),
        # of two stages none meets the target once whole layers are in them
        (("glm-5.3-flash", "nvl", (32000, 512), Slo(ttft=0.5, tpot=0.01), 1.0), 7),
    ],
)
def test_small_rates_are_proven(
    asked: tuple[str, str, tuple[int, int], Slo, float], chips: int
) -> None:
    found = search(question(*asked), clock=Clock())
    assert found.status == "optimal"
    assert found.evaluation.chips_used == chips


def test_money_for_chips_of_one_price_is_that_of_whole_ones() -> None:
    (cheap, dear) = pools(2, 8)
    price = CHEAP.usd_per_hour
    assert whole_chips(0.3 * price, [cheap]) == pytest.approx(price)
    assert whole_chips(2.0 * price, [cheap]) == pytest.approx(2.0 * price)
    assert whole_chips(2.001 * price, [cheap]) == pytest.approx(3.0 * price)
    assert whole_chips(0.3 * price, [cheap, dear]) == 0.3 * price


def test_traffic_that_one_chip_carries_is_bounded_by_one_chip() -> None:
    """The bound of windowed layers had been a part of a chip."""
    workload = Workload(input_tokens=512, output_tokens=1000, cached_tokens=256)
    scenario = Scenario(model="gemma-4-26b-a4b", cluster="hgx-b300", workload=workload, granularity="chip")  # fmt: skip
    requests = steady(workload, Arrivals(rate=5.0), 2000, 0).at_rate(5.0)
    found = search_traffic(
        scenario, Asked(requests, Targets(20.0, 0.03), peak=2.0), clock=Clock(), gap=0.01
    )
    assert found.evaluation.chips_used == 1
    assert found.certificate.gap < 1e-6
