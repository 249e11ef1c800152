"""The order of a move: as wide at its narrowest as the best of all orders, by enumeration."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from costmodel.layout.layout import Role
from solver.move.bundles import Part, together
from solver.move.order import Orders, served

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


def side_by_side(rng: np.random.Generator, chips: int, number: int, widest: int) -> list[Part]:
    """Replicas of few kinds next to each other on so many chips."""
    found, first = list[Part](), 0
    while len(found) < number and first < chips:
        size = min(int(rng.integers(1, widest + 1)), chips - first)
        own = range(first, first + size)
        found.append(part(ROLES[rng.integers(3)], float(rng.integers(1, 3)), *own))
        first += size
    return found


def running(orders: Orders, stopped: set[int], started: set[int]) -> float:
    """Requests per second of what runs."""
    old = [part for at, part in enumerate(orders.old) if at not in stopped]
    return served(together([*orders.stays, *old, *(orders.new[at] for at in started)]))


def narrowest(orders: Orders, order: tuple[int, ...]) -> float:
    """Requests per second at the worst moment of one order of starts."""
    started: set[int] = set()
    stopped: set[int] = set()
    found = running(orders, stopped, started)
    for at in order:
        stopped |= orders.needs[at]
        found = min(found, running(orders, stopped, started))
        started.add(at)
    return min(found, served(together([*orders.stays, *orders.new])))


@pytest.mark.parametrize("seed", range(40))
def test_no_order_serves_more_at_its_worst_moment(seed: int) -> None:
    rng = np.random.default_rng(seed)
    orders = Orders([part("mixed", 1.0, 99)], drawn(rng, 5), drawn(rng, 5))
    found = orders.best(0.0)
    best = max(narrowest(orders, order) for order in permutations(range(len(orders.new))))
    assert found.proven
    assert found.least == pytest.approx(best)


def test_no_order_of_few_kinds_on_few_chips_serves_more() -> None:
    """Many are alike, and share chips over others."""
    for seed in range(500):
        rng = np.random.default_rng(seed)
        chips, stays = int(rng.integers(4, 14)), [part("mixed", 1.0, 99)] * int(rng.integers(2))
        orders = Orders(stays, side_by_side(rng, chips, 7, 4), side_by_side(rng, chips, 5, 3))
        found = orders.best(0.0)
        best = max(narrowest(orders, order) for order in permutations(range(len(orders.new))))
        assert found.proven
        assert found.least == pytest.approx(best), seed


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
        assert running(orders, stopped, started) >= min(enough, found.least) - 1e-9
        started |= set(exchange.start)
    assert started == set(range(len(orders.new)))
    assert stopped == set(range(len(orders.old)))


def test_replicas_on_free_chips_start_before_others_stop() -> None:
    old = [part("mixed", 2.0, 0), part("mixed", 2.0, 1)]
    found = Orders([], old, [part("mixed", 3.0, 0), part("mixed", 3.0, 2)]).best(4.0)
    assert found.exchanges[0].start == (1,)
    assert not found.exchanges[0].stop
    assert found.least == 4.0


def test_hundreds_of_replicas_alike_are_ordered_at_once() -> None:
    """Sets of replicas are as many as numbers of their kinds, not as the sets themselves."""
    old = [part("decode", 2.0, 2 * at, 2 * at + 1) for at in range(300)]
    old += [part("prefill", 3.0, 600 + at) for at in range(200)]
    new = [part("decode", 1.5, at) for at in range(600)]
    new += [part("prefill", 3.0 + at % 2, 600 + at) for at in range(200)]
    orders = Orders([], old, new)
    found = orders.best(0.0)
    assert found.proven
    # the narrowest moment is that of the first prefill replica that loads beside all decode replicas, or of the first decode one
    assert found.least == 597.0
    assert sorted(at for one in found.exchanges for at in one.start) == list(range(800))


def test_where_the_search_ends_early_an_order_as_wide_as_all_is_proven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("solver.move.order._MOST_LOOKED", 1)
    proven = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        orders = Orders([part("mixed", 1.0, 99)], drawn(rng, 5), drawn(rng, 5))
        found = orders.best(0.0)
        best = max(narrowest(orders, order) for order in permutations(range(len(orders.new))))
        assert found.least <= best + 1e-9
        assert not found.proven or found.least == pytest.approx(best)
        proven += found.proven
    assert 0 < proven < 40
