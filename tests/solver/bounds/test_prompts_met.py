"""A first token of a mixed replica meets the prompts of all ranks with sequences: bounds count as many as have to have some."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from solver.bounds.block import Block
from solver.bounds.pricing import Pricer
from solver.shapes.pools import pool_classes
from solver.shapes.shapes import ROLES, enumerate_shapes
from tests.solver.sequences import with_sequences

#: HBM has room for some hundred sequences of a rank; the prompts of four ranks take most of the time to a first token
FULL = {
    "model": "deepseek-v4-flash", "cluster": "hgx-h100", "engine": "sglang", "slo": {"ttft": 0.19},
    "workload": {"input_tokens": 1000, "output_tokens": 16_000}, "speculative": {"draft_tokens": 3, "acceptance": 0.8},
}  # fmt: skip
#: three sequences of a rank at most
FEW = {
    "model": "dbrx", "cluster": "nvl-8", "slo": {"ttft": 0.3}, "limits": {"max_sequences_per_rank": 3},
    "workload": {"input_tokens": 1000, "output_tokens": 100},
}  # fmt: skip


def most_by_hand(instance: Instance, ranks: int) -> float:
    """Requests/s of the best of replicas with equally many sequences on some of the ranks, one or none more on one."""
    layout = plain_layout(instance, "mixed", tp=1, attention_dp=ranks, batch=ranks)
    best = 0.0

    def served(counts: list[int]) -> float:
        replica = with_sequences(layout.replicas[0], counts)
        found = evaluate(instance, Layout(replicas=(replica,), expert_maps=layout.expert_maps))
        good = not found.violations
        return float(found.priced.replicas[0].service.requests_per_s) if good else 0.0

    for used in range(1, ranks + 1):
        low, high = 0, instance.limits.max_sequences_per_rank
        while low < high:
            middle = (low + high + 1) // 2
            rate = served([middle] * used + [0] * (ranks - used))
            best = max(best, rate)
            low, high = (middle, high) if rate else (low, middle - 1)
        best = max(best, served([low + 1] + [low] * (used - 1) + [0] * (ranks - used)))
    return best


@pytest.mark.parametrize(("asked", "ranks", "gain"), [(FULL, 4, 0.05), (FEW, 8, 0.0)])
def test_as_many_ranks_meet_as_sequences_need(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, object], ranks: int, gain: float
) -> None:
    instance = resolve_instance(Scenario.model_validate(asked))
    moe = instance.operations.moe
    assert moe is not None
    classes = pool_classes(instance.cluster)
    shapes = enumerate_shapes(instance, classes)
    own = (shapes.role == ROLES.index("mixed")) & (shapes.tp == 1) & (shapes.attention_dp == ranks)
    (row,) = np.flatnonzero(own & (shapes.slots == moe.num_experts) & (shapes.slices == 1))
    bound = float(Pricer(instance, classes).bounds(shapes).requests_per_s[row])
    by_hand = most_by_hand(instance, ranks)
    assert 0 < by_hand <= bound * (1 + 1e-9)
    monkeypatch.setattr(
        Block, "_room_of_rank", property(lambda block: np.full(len(block.tp), np.inf))
    )
    of_one = float(Pricer(instance, classes).bounds(shapes).requests_per_s[row])
    assert bound <= of_one * (1 - gain)
