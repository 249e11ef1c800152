"""Replicas over several domains take KV, or send it, in each of them."""

from __future__ import annotations

import pytest

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import Role
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer


def judged(wide: Role, first: str, stages: int, alone: str) -> Evaluation:
    """A replica over half of two nodes, in stages, and one of the other role on a single chip."""
    workload = Workload(input_tokens=1000, output_tokens=100)
    asked = Scenario(model="qwen3-30b-a3b", cluster="hgx-h200@2", workload=workload)
    instance = resolve_instance(asked)
    other = "r1" if first == "r0" else "r0"
    chips = (*(f"{first}g{n}" for n in range(4)), *(f"{other}g{n}" for n in range(4)))
    batch = {"prefill": 8, "decode": 64}
    role: Role = "prefill" if wide == "decode" else "decode"
    servers = [
        FoundServer("w", wide, tp=1, attention_dp=8 // stages, pp=stages, batch=batch[wide], chips=chips),
        FoundServer("a", role, tp=1, attention_dp=1, pp=1, batch=batch[role] // 8, chips=(alone,)),
    ]  # fmt: skip
    return evaluate(instance, build_layout(instance, servers).layout)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("first", ["r0", "r1"])
def test_prompts_beside_one_end_of_a_wide_decode_replica(first: str, stages: int) -> None:
    found = judged("decode", first, stages, "r0g7")
    assert found.violations == ()
    moved = found.priced.transfer_s[1]
    assert moved is not None
    assert moved > 0


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("first", ["r0", "r1"])
def test_a_wide_prefill_replica_beside_its_only_decode_replica(first: str, stages: int) -> None:
    """What lies in the other domain goes to the decode replica's; before, no way was found from its own."""
    times = []
    for chip in ("r0g7", "r1g7"):
        found = judged("prefill", first, stages, chip)
        assert found.violations == ()
        assert found.output_tokens_per_s is not None
        assert found.output_tokens_per_s > 0
        times.append(found.priced.transfer_s[0])
    assert times[0] == times[1]
    assert times[0] is not None
    assert times[0] > 0
