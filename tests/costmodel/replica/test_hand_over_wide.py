"""Replicas over several domains take KV, or send it, in each of them."""

from __future__ import annotations

import pytest

from costmodel.evaluate import evaluate
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("first", ["r0", "r1"])
def test_prompts_beside_one_end_of_a_wide_decode_replica(first: str, stages: int) -> None:
    workload = Workload(input_tokens=1000, output_tokens=100)
    asked = Scenario(model="qwen3-30b-a3b", cluster="hgx-h200@2", workload=workload)
    instance = resolve_instance(asked)
    other = "r1" if first == "r0" else "r0"
    wide = [f"{first}g{n}" for n in range(4)] + [f"{other}g{n}" for n in range(4)]
    decode = FoundServer("d", "decode", tp=1, attention_dp=8 // stages, pp=stages, batch=64, chips=tuple(wide))  # fmt: skip
    prefill = FoundServer("p", "prefill", tp=1, attention_dp=1, pp=1, batch=1, chips=("r0g7",))
    found = evaluate(instance, build_layout(instance, [decode, prefill]).layout)
    assert found.violations == ()
    moved = found.priced.transfer_s[1]
    assert moved is not None
    assert moved > 0


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("first", ["r0", "r1"])
def test_a_wide_prefill_replica_beside_its_only_decode_replica(first: str, stages: int) -> None:
    """What lies in the other domain goes to the decode replica's; before, no way was found from its own."""
    workload = Workload(input_tokens=1000, output_tokens=100)
    asked = Scenario(model="qwen3-30b-a3b", cluster="hgx-h200@2", workload=workload)
    instance = resolve_instance(asked)
    other = "r1" if first == "r0" else "r0"
    wide = [f"{first}g{n}" for n in range(4)] + [f"{other}g{n}" for n in range(4)]
    prefill = FoundServer("p", "prefill", tp=1, attention_dp=8 // stages, pp=stages, batch=8, chips=tuple(wide))  # fmt: skip
    times = []
    for chip in ("r0g7", "r1g7"):
        decode = FoundServer("d", "decode", tp=1, attention_dp=1, pp=1, batch=8, chips=(chip,))
        found = evaluate(instance, build_layout(instance, [prefill, decode]).layout)
        assert found.violations == ()
        assert found.output_tokens_per_s is not None
        assert found.output_tokens_per_s > 0
        times.append(found.priced.transfer_s[0])
    assert times[0] == times[1]
    assert times[0] is not None
    assert times[0] > 0
