"""LoRA adapters take HBM on every stage and are read in every pass."""

from __future__ import annotations

import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.adapters import Adapters
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from costmodel.replica.serving import schedule
from costmodel.replica.stage_memory import stage_memory
from solver.clock import Clock
from solver.search import search

SIZE, COUNT = 200e6, 32


def _question(count: int) -> Instance:
    return resolve_instance(
        Scenario(
            model="llama-3.1-70b",
            cluster="hgx-h100",
            workload=Workload(input_tokens=1000, output_tokens=200),
            profile="physics",
            adapters=Adapters(count=count, bytes=SIZE) if count else None,
        )
    )


def test_each_pass_reads_all_adapters_and_a_token_passes_one() -> None:
    plain, adapted = _question(0), _question(COUNT)
    times = [
        evaluate(one, plain_layout(one, "decode", tp=4, batch=8)).tpot_s for one in (plain, adapted)
    ]
    assert times[0] is not None
    assert times[1] is not None
    chip = plain.cluster.usable[0].chip
    read = COUNT * SIZE / 4 / chip.hbm_bytes_per_s
    assert read > 8 * SIZE / 4 / chip.flops_per_s["bf16"]
    assert times[1] - times[0] == pytest.approx(read, rel=1e-6)


def test_adapters_lie_with_the_layers_they_belong_to() -> None:
    held = []
    for one in (_question(0), _question(COUNT)):
        replica = plain_layout(one, "mixed", tp=2, pp=2, batch=8).replicas[0]
        memory = stage_memory(one, replica, schedule("mixed", one.workload, one.limits, 4))
        held.append([float(stage["weights"][0]) for stage in memory])
    for before, after in zip(*held, strict=True):
        assert after - before == pytest.approx(COUNT * SIZE / 4, rel=1e-6)


def test_a_layout_found_with_adapters_is_verified_and_costs_more() -> None:
    found = [search(_question(count), clock=Clock(60.0)) for count in (0, 100)]
    usd = []
    for one in found:
        assert one.status == "optimal"
        assert not one.evaluation.violations
        usd.append(one.evaluation.usd_per_m_output_tokens or 0.0)
    assert usd[1] > usd[0] > 0
