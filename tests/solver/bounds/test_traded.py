"""Bounds on load and on touched experts, taken together: never above any placement, and above both alone."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from costmodel.experts.moe_load import expert_shares
from costmodel.layout.layout import spread
from solver.bounds.experts.expert_bounds import ExpertBounds, copies_are_hot
from solver.bounds.experts.traded import touched_under
from solver.clock import Clock
from solver.rounds import Search
from tests.solver.place.test_dealt_anew import asked


@pytest.mark.parametrize(
    ("experts", "chips", "slots"),
    [(5, 2, 5), (5, 3, 5), (4, 3, 5), (4, 2, 6), (5, 3, 7), (3, 3, 7)],
)
@pytest.mark.parametrize("hot_copies", [False, True])
def test_no_placement_is_below_the_bound(
    experts: int, chips: int, slots: int, hot_copies: bool
) -> None:
    rng = np.random.default_rng(experts * 100 + chips * 10 + slots)
    sizes = tuple(spread(slots, chips))
    every = [list(combinations(range(experts), size)) for size in sizes]
    rows = np.array(
        [
            [expert for chip in chosen for expert in chip]
            for chosen in product(*every)
            if len({expert for chip in chosen for expert in chip}) == experts
        ]
    )
    for _ in range(6):
        loads = rng.dirichlet(np.full(experts, 0.7))[None]
        tokens = float(rng.choice([2.0, 5.0, 12.0]))
        same = np.broadcast_to(loads, (len(rows), experts))
        kept = rows[copies_are_hot(same, rows)] if hot_copies else rows
        shares = expert_shares(same[: len(kept)], kept, sizes, 2.0, tokens)
        bounds = ExpertBounds(loads, 2.0, hot_copies=hot_copies)
        busiest, read = shares.busiest_load, shares.most_touched
        bound = touched_under(bounds, chips, slots, tokens, busiest[:, None])[:, 0]
        assert (bound <= read * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    ("experts", "chips", "slots", "spread_of_logs"), [(128, 24, 128, 0.5), (256, 72, 288, 1.0)]
)
def test_an_even_load_is_paid_for_with_experts_read(
    experts: int, chips: int, slots: int, spread_of_logs: float
) -> None:
    """The fullest chips have one expert more and not the coldest ones, or hot experts have copies; either is read."""
    loads = np.exp(np.random.default_rng(3).normal(0, spread_of_logs, (4, experts)))
    loads /= loads.sum(axis=1, keepdims=True)
    bounds = ExpertBounds(loads, 4.0, hot_copies=True)
    alone, caps = bounds.touched_by_layer(chips, slots, 150.0), bounds.layer_loads(chips, slots)
    under = touched_under(bounds, chips, slots, 150.0, caps * np.array([[1.0], [1.2], [100.0]]))
    assert (under[0] > alone).all()
    assert (np.diff(under, axis=0) <= 1e-9).all()


def test_what_is_left_of_a_bound_is_no_less_than_any_placement_serves() -> None:
    """The bounds of shapes with uneven and with spare slots fall, and stay above what was placed."""
    search = Search(asked("minimax-m3", "hgx-h200@3", (2000, 4000), 0.020), Clock(), 0.01, 0, None)
    search.run()
    lower = 0
    for row, placed in search.placed.realised.items():
        shape = search.shapes.row(row)
        chips, slots = shape["tp"] * shape["attention_dp"], shape["slots"]
        if not slots or placed.requests_per_s == 0:
            continue
        _, proven = search.placed.realiser.placements.of(spread(slots, chips), free=True)
        most = int(search.bounds.per_rank[row])
        plain, traded = (
            search.pricer.tightened(search.shapes, row, proven, most, traded=own)
            for own in (False, True)
        )
        assert placed.requests_per_s <= traded * (1 + 1e-9)
        assert traded <= plain * (1 + 1e-9)
        lower += traded < plain * (1 - 1e-4)
    assert lower
