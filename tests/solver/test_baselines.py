"""The baselines of the solve benchmark keep to their description and never beat the bound."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.baselines.identical import (
    Allowed,
    cheapest_identical,
    common_widths,
    tensor_in_node,
)
from benchmarks.baselines.solve import instance_of, reasons
from costmodel.evaluate import evaluate
from costmodel.question.instance import Instance
from solver.clock import Clock
from solver.search import search
from topology.errors import NoFeasibleLayout


@pytest.mark.parametrize("allowed", [common_widths, tensor_in_node])
def test_a_baseline_is_never_below_the_bound(
    tiny: Callable[[int, int, int, int], Instance], allowed: Allowed
) -> None:
    compared = 0
    for seed in range(1000, 1012):
        instance = tiny(seed, 5, 2, 0)
        other = cheapest_identical(instance, allowed)
        try:
            found = search(instance, clock=Clock(60), gap=0.0)
        except NoFeasibleLayout:
            assert other is None
            continue
        if other is None:
            continue
        assert other.complete
        judged = evaluate(instance, other.layout)
        assert judged.feasible
        assert judged.usd_per_m_output_tokens is not None
        bound = found.certificate.bound_usd_per_m_output_tokens
        assert judged.usd_per_m_output_tokens >= bound * (1 - 1e-9)
        assert len({(r.role, r.shape) for r in other.layout.replicas}) == len(
            {r.role for r in other.layout.replicas}
        )
        for replica in other.layout.replicas:
            assert replica.shape.tp & (replica.shape.tp - 1) == 0
        compared += 1
    assert compared >= 3


def test_a_row_of_the_table_says_why_it_differs() -> None:
    instance = instance_of("glm-4.5", "hgx-h200@2", 50)
    found = search(instance, clock=Clock(60), gap=0.002)
    other = cheapest_identical(instance, common_widths)
    assert other is not None
    ours, theirs = found.evaluation, other.evaluation
    assert ours.usd_per_m_output_tokens is not None
    assert theirs.usd_per_m_output_tokens is not None
    assert ours.usd_per_m_output_tokens < 0.95 * theirs.usd_per_m_output_tokens
    text = reasons(found.layout, ours, other)
    odd = {len(r.chips) for r in found.layout.replicas if len(r.chips) & (len(r.chips) - 1)}
    assert "idle chips filled" in text or any(f"{width} chips" in text for width in odd)
