"""Experts in order: the bound on the busiest chip is what the judge finds, no more and hardly less."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.experts.moe_load import expert_shares
from costmodel.layout.layout import spread
from costmodel.question.engine import in_order
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from solver.bounds.experts.expert_bounds import GRID, ExpertBounds
from solver.bounds.experts.ordered_bounds import OrderedBounds, never_places, placed_in_order
from solver.bounds.pricing import Pricer
from solver.clock import Clock
from solver.rounds import Search
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


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "deepseek-v2-lite", "ernie-4.5-21b-a3b"])
def test_stages_of_unlike_layers_are_bounded_layer_by_layer(model: str) -> None:
    """Layers in order are loaded unlike: the longest stage is that of the best cut of these layers."""
    workload = {"input_tokens": 4000, "output_tokens": 200}
    data = {"model": model, "cluster": "hgx-h100", "workload": workload, "engine": "vllm",
            "slo": {"ttft": 5.0, "tpot": 0.05}}  # fmt: skip
    instance = resolve_instance(Scenario.model_validate(data))
    search = Search(instance, Clock(None), 0.01, 0, None)
    shapes = search.shapes
    assert instance.operations.moe is not None
    plain = shapes.slots == instance.operations.moe.num_experts
    piped = (shapes.role == 0) & (shapes.tp == 1) & (shapes.attention_dp == 2) & plain
    for row in np.flatnonzero(piped & (shapes.pp > 2)).tolist():
        own = spread(int(shapes.slots[row]), int(shapes.stage_chips[row]))
        loads = placed_in_order(instance.expert_loads, own)[1]
        search.place([row])
        rate = search.placed.realised[row].requests_per_s
        most = int(search.bounds.per_rank[row])
        bound = search.pricer.tightened(shapes, row, loads, most)
        assert rate <= bound <= rate * (1 + 1e-6)


def test_a_smaller_batch_may_serve_more_where_some_chips_have_one_slot_more() -> None:
    """128 experts in order on seven chips: 99 sequences on every rank serve more than 101 beside 18 slots, 99 beside 19."""
    asked = Scenario(
        model="qwen3-235b-a22b-fp8", cluster="hgx-h200", failed=("r0g0",), workload="chat",
        engine="vllm",
    )  # fmt: skip
    answer = Search(resolve_instance(asked), Clock(), 0.01, 0, None).run()
    assert answer is not None
    assert {len(set(stage.slots())) for one in answer.layout.replicas for stage in one.stages} == {
        2
    }
    assert answer.certificate.gap < 0.01
