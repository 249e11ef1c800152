"""Experts in order: the bound on the busiest chip is what the judge finds, no more and hardly less."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.experts.moe_load import expert_shares
from costmodel.layout.layout import spread
from costmodel.question.engine import in_order
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from solver.bounds.expert_bounds import GRID, ExpertBounds
from solver.bounds.ordered_bounds import OrderedBounds, never_places
from solver.bounds.pricing import Pricer
from solver.shapes.pools import pool_classes


@pytest.mark.parametrize(
    ("chips", "slots"), [(1, 16), (4, 16), (5, 16), (3, 18), (4, 24), (8, 32), (6, 36)]
)
def test_the_busiest_chip_is_the_judges(chips: int, slots: int) -> None:
    rng = np.random.default_rng(chips * 100 + slots)
    loads = rng.dirichlet(np.full(16, 0.5), size=5)
    bounds = OrderedBounds(loads, 4, hot_copies=True)
    own = spread(slots, chips)
    rows = np.tile(in_order(16, slots), (5, 1))
    for place in (0, 7, 20, 40):
        shares = expert_shares(loads, rows, own, 4, GRID[place])
        assert bounds.layer_loads(chips, slots) == pytest.approx(shares.busiest_load, rel=1e-12)
        assert bounds.touched_by_layer(chips, slots, GRID[place]) == pytest.approx(
            shares.most_touched, rel=1e-9
        )
        mean, least = bounds.touched_on_grid(chips, slots)
        assert mean[place] <= shares.most_touched.mean()
        assert least[place] <= shares.most_touched.min()
        tight = slots <= 32  # beyond two copies of each expert the bound is that of any placement
        if tight:
            assert mean[place] == pytest.approx(shares.most_touched.mean(), rel=1e-9)
            free = ExpertBounds(loads, 4, hot_copies=True).touched_on_grid(chips, slots)[0]
            assert mean[place] >= free[place] * (1 - 1e-9)


@pytest.mark.parametrize(
    ("model", "engine", "fixed"),
    [
        ("kimi-k2", "vllm", True), ("llama-4-maverick", "sglang", True),
        ("qwen3-235b-a22b", "sglang", False), ("kimi-k2", "trtllm", False), ("kimi-k2", None, False),
    ],
)  # fmt: skip
def test_bounds_know_which_engines_place_nothing(
    model: str, engine: str | None, fixed: bool
) -> None:
    workload = {"input_tokens": 1000, "output_tokens": 100}
    data = {"model": model, "cluster": "hgx-b200@2", "workload": workload, "engine": engine}
    instance = resolve_instance(Scenario.model_validate(data))
    assert never_places(instance) == fixed
    experts = Pricer(instance, pool_classes(instance.cluster)).experts
    assert isinstance(experts, OrderedBounds) == fixed
