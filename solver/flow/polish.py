"""Small changes of a placement, each judged by its flow: what sections cannot express."""

from __future__ import annotations

import random
from collections.abc import Sequence

from solver.clock import Clock
from solver.flow.network import Network, Ranges

_Held = list[tuple[int, int] | None]


def polish(
    network: Network, ranges: Ranges, *, tries: int, clock: Clock, seed: int
) -> tuple[float, Ranges]:
    """The best of so many small random changes, one upon the other; equal ones are kept, worse ones not."""
    drawn = random.Random(seed)
    best, flow = list(ranges), network.flow(ranges)
    most = [len(rates) - 1 for rates in network.rates]
    changes = (_swap, _copy, _stretch, _shift)
    for _ in range(tries):
        if clock.over:
            break
        tried = drawn.choice(changes)(drawn, best, most, network.layers)
        if tried is None or tried == best:
            continue
        found = network.flow(tried)
        if found >= flow:
            best, flow = tried, found
    return flow, best


def _fits(held: tuple[int, int] | None, most: int) -> bool:
    return held is None or held[1] - held[0] < most


def _swap(drawn: random.Random, held: _Held, most: Sequence[int], layers: int) -> _Held | None:
    """Two nodes change places."""
    one, other = drawn.randrange(len(held)), drawn.randrange(len(held))
    if not (_fits(held[one], most[other]) and _fits(held[other], most[one])):
        return None
    tried = list(held)
    tried[one], tried[other] = tried[other], tried[one]
    return tried


def _copy(drawn: random.Random, held: _Held, most: Sequence[int], layers: int) -> _Held | None:
    """A node helps another one: it holds the same layers."""
    one, other = drawn.randrange(len(held)), drawn.randrange(len(held))
    if held[other] is None or not _fits(held[other], most[one]):
        return None
    tried = list(held)
    tried[one] = held[other]
    return tried


def _stretch(drawn: random.Random, held: _Held, most: Sequence[int], layers: int) -> _Held | None:
    """A node that holds nothing, or something else, begins where another one ends."""
    one, other = drawn.randrange(len(held)), drawn.randrange(len(held))
    neighbour = held[other]
    first = 0 if neighbour is None else neighbour[1] + 1
    if first >= layers:
        return None
    tried = list(held)
    tried[one] = (first, min(layers, first + drawn.randint(1, most[one])) - 1)
    return tried


def _shift(drawn: random.Random, held: _Held, most: Sequence[int], layers: int) -> _Held | None:
    """The layer at which some nodes end and others begin is moved by one, for all of them or for one pair."""
    begin = drawn.randrange(1, layers) if layers > 1 else 0
    step = drawn.choice((-1, 1))
    tried = list(held)
    whole = drawn.random() < 0.7
    chosen = {drawn.randrange(len(held)), drawn.randrange(len(held))}
    for node, now in enumerate(held):
        if now is None or not (whole or node in chosen):
            continue
        first, last = now
        first += step if first == begin else 0
        last += step if last == begin - 1 else 0
        if not 0 <= first <= last < layers or last - first >= most[node]:
            return None
        tried[node] = (first, last)
    return tried
