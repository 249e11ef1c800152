"""A mixture of experts that drafts for a dense model: engines give it the model's tensor parallelism, and cut its experts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.passes.communication import GroupRates
from costmodel.passes.group import ChipGroup
from costmodel.passes.pass_time import PassTime, pass_time
from costmodel.passes.tokens import Tokens
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.profile import Efficiency
from costmodel.question.scenario import Scenario
from costmodel.question.speculation import Speculative
from costmodel.question.workload import Workload
from costmodel.replica import memory
from solver.clock import Clock
from solver.search import search
from solver.shapes.shapes import tensor_widths
from topology.catalogue import data_dir

NO_TRAFFIC = GroupRates(*(np.zeros(()) for _ in GroupRates.__dataclass_fields__))


def asked(draft: str, model: str = "qwen3-32b") -> Instance:
    """A question whose tokens are drafted by a mixture of 128 experts of 768 columns."""
    return resolve_instance(
        Scenario(
            model=model,
            cluster="hgx-h200",
            workload=Workload(input_tokens=2000, output_tokens=500),
            speculative=Speculative(draft_tokens=2, acceptance=0.7, draft=draft),
        )
    )


def timed(instance: Instance, tp: int, whole: float) -> PassTime:
    """A pass of 64 sequences on one rank; ``whole``: of the model's experts."""
    chip = instance.cluster.chips[0].chip
    group = replace(
        ChipGroup.of(instance.operations, tp, 1, chip, Efficiency(routing_noise=1.0), NO_TRAFFIC),
        whole=whole,
    )
    tokens = Tokens(decode=64.0, context=2000.0, verified=3.0)
    return pass_time(group, [], tokens, [], record=True)


def test_each_chip_holds_a_slice_of_every_expert() -> None:
    operations = asked("qwen3-30b-a3b").operations
    draft = operations.draft
    assert draft is not None
    assert draft.own is not None
    assert operations.moe is None
    moe = draft.own.moe
    assert moe is not None
    layers = sum(count for kind, count in draft.layers if kind.moe is not None)
    # whole experts would be 22 on the fullest of six chips
    held = float(memory.draft_weight_bytes(operations, 6.0, 6.0))
    rest = float(memory.dense_weight_bytes(draft.layers, 6.0)) + draft.table_bytes / 6.0
    assert held - rest == pytest.approx(layers * 128 / 6 * moe.expert_bytes)
    assert float(memory.draft_weight_bytes(operations, 6.0, 6.0, 0.0)) == held


def test_no_chip_is_busier_than_another_and_slices_are_read() -> None:
    """No token is at a chip in vain: what it multiplies and reads is its part of every expert that tokens meet."""
    instance = asked("qwen3-30b-a3b")
    one, four = (timed(instance, tp, 1.0) for tp in (1, 4))
    experts = {
        tp: [term for term in found.terms or [] if term.stream == "experts"]
        for tp, found in ((1, one), (4, four))
    }
    for alone, shared in zip(experts[1], experts[4], strict=True):
        assert float(shared.compute_s) == pytest.approx(float(alone.compute_s) / 4)
        assert float(shared.memory_s) > float(alone.memory_s) / 4  # narrow slices are read slower
    cut = timed(instance, 4, 0.0)
    assert float(four.total_s("per_op")) == float(cut.total_s("per_op"))


def test_beside_a_mixture_of_experts_they_lie_as_the_models_own() -> None:
    instance = asked("qwen3-30b-a3b", "qwen3-235b-a22b")
    operations = instance.operations
    assert operations.moe is not None
    whole, cut = (float(memory.draft_weight_bytes(operations, 6.0, 6.0, one)) for one in (1.0, 0.0))
    assert whole > cut


def test_blocks_of_scales_are_not_parted() -> None:
    """Six blocks of 128 columns go over 1, 2, 3 or 6 chips; engines do not start on 4 or 8."""
    narrow, free = asked("qwen3-30b-a3b-fp8"), asked("qwen3-30b-a3b")
    assert {4, 8} <= set(tensor_widths(free))
    assert [tp for tp in tensor_widths(free) if 6 % tp == 0] == tensor_widths(narrow)
    for tp, fits in ((2, True), (4, False)):
        layout = plain_layout(narrow, "mixed", tp=tp, batch=4)
        said = [one for one in evaluate(narrow, layout).violations if one.rule == "shape_matches"]
        assert (not said) == fits
        if not fits:
            assert "768 columns of an expert of the draft are not cut evenly over all 4" in str(
                said[0]
            )
    found = search(narrow, clock=Clock(60))
    assert found.certificate.gap <= 0.01
    assert {replica.shape.tp for replica in found.layout.replicas} <= {1, 2}


def test_query_heads_of_a_draft_are_divided_too(tmp_path: Path) -> None:
    """Engines give a draft the model's tensor parallelism, and do not start where that leaves a part of a head."""
    config = json.loads((data_dir("models") / "llama-3.1-8b.json").read_text(encoding="utf-8"))
    own = tmp_path / "twelve.json"
    narrow = {"hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 2}
    own.write_text(json.dumps(config | narrow), encoding="utf-8")
    instance = asked(str(own), "llama-3.1-70b")
    assert tensor_widths(instance) == [1, 2, 4]
    for tp, fits in ((4, True), (8, False)):
        layout = plain_layout(instance, "mixed", tp=tp, batch=4)
        said = [one for one in evaluate(instance, layout).violations if one.rule == "shape_matches"]
        assert [one.message for one in said] == (
            [] if fits else ["tp 8 does not divide 12 query heads"]
        )
