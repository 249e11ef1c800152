"""Experts dealt anew for one batch: against every placement of small layers, and what it leaves as it was."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from costmodel.experts.moe_load import expert_shares
from solver.experts.level import levelled
from solver.experts.place import place_layers

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


def skewed(layers: int, experts: int, seed: int) -> Array:
    loads = np.exp(np.random.default_rng(seed).normal(0, 1.0, (layers, experts)))
    return np.asarray(loads / loads.sum(axis=1, keepdims=True))


def timed(loads: Array, slots: tuple[int, ...], top_k: float, tokens: float, weigh: float) -> Callable[[Rows], Array]:  # fmt: skip
    """Seconds of layers whose weights take one for each expert that is read, and whose tokens take ``weigh``."""

    def seconds(rows: Rows) -> Array:
        shares = expert_shares(loads, rows, slots, top_k, tokens)
        return np.asarray(shares.most_touched + weigh * shares.busiest_load)

    return seconds


@pytest.mark.parametrize("weigh", [0.1, 2.0, 40.0])
def test_two_chips_are_dealt_nearly_as_well_as_can_be(weigh: float) -> None:
    loads, slots = skewed(40, 8, 1), (4, 4)
    seconds = timed(loads, slots, 2.0, 6.0, weigh)
    rows = place_layers(loads, slots, effort="fast").physical_to_logical
    found = seconds(levelled(loads, 2.0, 6.0, rows, slots, np.zeros(40), seconds, 0))
    every = [
        (*kept, *(expert for expert in range(8) if expert not in kept))
        for kept in combinations(range(8), 4)
    ]
    best = np.min([seconds(np.tile(one, (40, 1))) for one in every], axis=0)
    assert (found >= best - 1e-12).all()
    assert (found <= seconds(rows)).all()
    assert found.sum() <= 1.01 * best.sum()


def test_replicas_stay_as_many_and_apart() -> None:
    """Some chips have five slots, some four; copies of an expert lie on chips of their own."""
    loads, slots = skewed(12, 20, 2), (5, 5, 4, 4, 4, 4)
    rows = place_layers(loads, slots, effort="fast").physical_to_logical
    seconds = timed(loads, slots, 2.0, 8.0, 1.0)
    dealt = levelled(loads, 2.0, 8.0, rows, slots, np.zeros(12), seconds, 0)
    assert (np.sort(dealt, axis=1) == np.sort(rows, axis=1)).all()
    ends = np.cumsum((0, *slots))
    for row in dealt:
        for first, last in pairwise(ends):
            assert len(set(row[first:last].tolist())) == last - first
    assert seconds(dealt).sum() < 0.98 * seconds(rows).sum()


def test_layers_that_read_few_enough_are_left_alone() -> None:
    loads, slots = np.full((3, 16), 1 / 16), (4, 4, 4, 4)
    rows = np.tile(np.arange(16), (3, 1))
    dealt = levelled(loads, 2.0, 4.0, rows, slots, np.zeros(3), lambda _: np.zeros(3), 0)
    assert (dealt == rows).all()
