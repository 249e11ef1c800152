"""The order of a move: as wide at its narrowest as the best of all orders, by enumeration."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from costmodel.layout.layout import Role
from solver.move.order import Orders, Part, served

ROLES: tuple[Role, ...] = ("prefill", "decode", "mixed")


def part(role: Role, rate: float, *chips: int) -> Part:
    return Part(role, rate, frozenset(map(str, chips)), (role, rate, len(chips)))


def drawn(rng: np.random.Generator, number: int) -> list[Part]:
    """Replicas side by side on sixteen chips, alike ones among them."""
    chips = rng.permutation(16).tolist()
    found = []
    for _ in range(number):
        size = int(rng.integers(1, 4))
        own, chips = chips[:size], chips[size:]
        found.append(part(ROLES[rng.integers(3)], float(rng.integers(1, 4)), *own))
    return found


def narrowest(orders: Orders, order: tuple[int, ...]) -> float:
    """Requests per second at the worst moment of one order of starts."""
    started: set[int] = set()
    stopped: set[int] = set()
    found = orders.served(frozenset(), frozenset())
    for at in order:
        stopped |= orders.needs[at]
        found = min(found, orders.served(frozenset(stopped), frozenset(started)))
        started.add(at)
    return min(found, served([*orders.stays, *orders.new]))


@pytest.mark.parametrize("seed", range(40))
def test_no_order_serves_more_at_its_worst_moment(seed: int) -> None:
    rng = np.random.default_rng(seed)
    orders = Orders([part("mixed", 1.0, 99)], drawn(rng, 5), drawn(rng, 5))
    found = orders.best(0.0)
    best = max(narrowest(orders, order) for order in permutations(range(len(orders.new))))
    assert found.proven
    assert found.least == pytest.approx(best)


@pytest.mark.parametrize("seed", range(10))
def test_exchanges_together_keep_what_is_asked_for(seed: int) -> None:
    rng = np.random.default_rng(seed)
    orders = Orders([part("mixed", 3.0, 99)], drawn(rng, 5), drawn(rng, 5))
    enough = 4.0
    alone = orders.best(1e9)
    found = orders.best(enough)
    assert len(found.exchanges) <= len(alone.exchanges)
    stopped: set[int] = set()
    started: set[int] = set()
    for exchange in found.exchanges:
        stopped |= set(exchange.stop)
        running = orders.served(frozenset(stopped), frozenset(started))
        assert running >= min(enough, found.least) - 1e-9
        started |= set(exchange.start)
    assert started == set(range(len(orders.new)))
    assert stopped == set(range(len(orders.old)))


def test_replicas_on_free_chips_start_before_others_stop() -> None:
    old = [part("mixed", 2.0, 0), part("mixed", 2.0, 1)]
    found = Orders([], old, [part("mixed", 3.0, 0), part("mixed", 3.0, 2)]).best(4.0)
    assert found.exchanges[0].start == (1,)
    assert not found.exchanges[0].stop
    assert found.least == 4.0
