"""What stays and what starts: equal to enumeration of every choice on tiny clusters."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from costmodel.layout.layout import Layout, Replica
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from solver.clock import Clock
from solver.fleet.asked import Question
from solver.fleet.items import Item
from solver.move.choose import Choice, Chosen, New
from solver.move.running import Option
from solver.shapes.pools import pool_classes
from solver.shapes.shapes import ROLES


@pytest.fixture(scope="module")
def instance() -> Instance:
    return resolve_instance(Scenario(model="llama-3.1-8b", cluster="hgx-h100@2", workload="chat"))


@pytest.fixture(scope="module")
def replica(instance: Instance) -> Replica:
    layout: Layout = plain_layout(instance, "mixed", tp=1, batch=1)
    return layout.replicas[0]


def drawn(
    rng: np.random.Generator, instance: Instance, replica: Replica
) -> tuple[list[Option], list[New]]:
    """Two ways on for each of four replicas of three chips, and two items."""
    chips = [placed.id for placed in instance.cluster.usable]
    stay = []
    for of in range(4):
        (stage,) = replica.stages
        own = stage.model_copy(update={"chips": tuple(chips[4 * of : 4 * of + 3])})
        for restarts in (False, True):
            role = ROLES[int(rng.integers(3))]
            one = replica.model_copy(update={"role": role, "stages": (own,)})
            rate = float(rng.integers(1, 9))
            stay.append(Option(of, one, rate, restarts, 2.0**30 * int(rng.integers(1, 5))))
    new = [
        New(
            Item(at, int(rng.integers(3)), 0, slices, 2, float(rng.integers(1, 9))),
            2.0**30 * int(rng.integers(1, 5)),
        )
        for at, slices in enumerate((1, 2))
    ]
    return stay, new


def totals(
    stay: list[Option], new: list[New], usd: float, counts: tuple[int, int]
) -> tuple[float, float, float]:
    """Requests per second, dollars per hour and bytes moved."""
    rates = dict.fromkeys(ROLES, 0.0)
    for option in stay:
        rates[option.replica.role] += option.requests_per_s
    for one, number in zip(new, counts, strict=True):
        rates[ROLES[one.item.role]] += one.item.requests_per_s * number
    rate = min(rates["prefill"], rates["decode"]) + rates["mixed"]
    chips = 3 * len(stay) + sum(one.item.chips * n for one, n in zip(new, counts, strict=True))
    return rate, usd * chips, sum(one.weight_bytes * n for one, n in zip(new, counts, strict=True))


def every(stay: list[Option], new: list[New], usd: float) -> list[tuple[float, float, float]]:
    """All choices: rate, money, bytes. The wide item takes two chips of each of the two nodes."""
    found = []
    for picked in product((None, 0, 1), repeat=4):
        on = [stay[2 * of + way] for of, way in enumerate(picked) if way is not None]
        room = [8 - 3 * sum(one.of // 2 == node for one in on) for node in (0, 1)]
        for narrow, wide in product(range(9), range(5)):
            free = [(chips - 2 * wide) // 2 for chips in room]
            if min(free) >= 0 and sum(free) >= narrow:
                found.append(totals(on, new, usd, (narrow, wide)))
    return [one for one in found if one[0] > 0]


def reached(chosen: Chosen, new: list[New], usd: float) -> tuple[float, float, float]:
    counts = tuple(sum(item is one.item for item, _ in chosen.start) for one in new)
    assert len(counts) == 2
    return totals(list(chosen.stay), new, usd, (counts[0], counts[1]))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["rate", "whole", "used"])
def test_the_choice_is_the_best_of_all(
    seed: int, kind: str, instance: Instance, replica: Replica
) -> None:
    rng = np.random.default_rng(seed)
    stay, new = drawn(rng, instance, replica)
    classes = pool_classes(instance.cluster)
    prices = {placed.id: placed.chip.usd_per_hour for placed in instance.cluster.chips}
    usd = classes[0].prices[0]
    all_of_them = every(stay, new, usd)
    most = max(rate for rate, _, _ in all_of_them)
    question = Question(
        whole=kind == "whole",
        whole_usd_per_hour=16 * usd,
        rate=0.49 * most if kind == "rate" else None,
    )

    def cost(one: tuple[float, float, float]) -> float:
        return question.cost_per_request(one[0], one[1])

    cheapest = min(map(cost, all_of_them))
    budget = 2.0**30 * int(rng.integers(0, 8))
    choice = Choice(stay, new, classes, question, prices)
    found = choice.least_money(budget, cheapest * 2, Clock(None), 0)
    allowed = [one for one in all_of_them if one[2] <= budget and cost(one) < float("inf")]
    assert (found is None) == (not allowed)
    if found is not None:
        made = reached(found, new, usd)
        assert made[2] <= budget
        assert cost(made) == pytest.approx(min(map(cost, allowed)), rel=1e-4)
    choice = Choice(stay, new, classes, question, prices)
    fewest = choice.least_moved(cheapest * 1.2, Clock(None), 0)
    assert fewest is not None
    made = reached(fewest, new, usd)
    assert cost(made) <= cheapest * 1.2 * (1 + 1e-6)
    assert made[2] == min(one[2] for one in all_of_them if cost(one) <= cheapest * 1.2 * (1 - 1e-4))
    for _, pools in fewest.start:
        assert len(set(pools)) == len(pools)
