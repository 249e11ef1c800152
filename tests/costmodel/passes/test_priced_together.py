"""Replicas that are priced at once have the prices that each has alone."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout, Role
from costmodel.layout.plain_layout import plain_layout
from costmodel.passes.tokens import Tokens
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.replica.replica import price_replica, price_replicas, stage_terms
from costmodel.replica.stage_times import _together

#: role, tp, attention_dp, pp, batch, redundant experts, first chip
REPLICAS: tuple[tuple[Role, int, int, int, int, int, int], ...] = (
    ("prefill", 1, 1, 3, 6, 0, 0),
    ("prefill", 2, 2, 2, 9, 0, 3),
    ("decode", 1, 12, 1, 300, 32, 11),
    ("decode", 4, 3, 2, 50, 0, 23),
    ("mixed", 1, 5, 2, 33, 5, 47),
    ("mixed", 8, 1, 1, 7, 0, 57),
)


def several(instance: Instance) -> Layout:
    """One layout of unlike replicas, each with its own expert map."""
    replicas, maps = [], {}
    for number, (role, tp, ranks, pp, batch, more, first) in enumerate(REPLICAS):
        one = plain_layout(
            instance, role, tp=tp, attention_dp=ranks, pp=pp, batch=batch, redundant_experts=more,
            first_chip=first,
        )  # fmt: skip
        name = f"map{number}" if one.expert_maps else None
        stages = tuple(s.model_copy(update={"expert_map": name}) for s in one.replicas[0].stages)
        replicas.append(one.replicas[0].model_copy(update={"stages": stages}))
        if name is not None:
            maps[name] = one.expert_maps["even"]
    return Layout(replicas=tuple(replicas), expert_maps=maps)


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "deepseek-v3"},
        {"model": "deepseek-v3", "speculative": {"draft_tokens": 2, "acceptance": 0.7}},
        {"model": "gpt-oss-120b", "two_batch_overlap": True},
        {"model": "qwen3-next-80b-a3b", "profile": "physics"},
        {"model": "llama-3.1-70b"},
    ],
)
def test_together_as_alone(changes: dict[str, object]) -> None:
    asked = {"cluster": "gb200-nvl72", "workload": "chat"} | changes
    instance = resolve_instance(Scenario.model_validate(asked))
    layout = several(instance)
    together = price_replicas(instance, layout, layout.replicas)
    for replica, price in zip(layout.replicas, together, strict=True):
        alone = price_replica(instance, layout, replica)
        for name in alone.service.__dataclass_fields__:
            own, other = (float(getattr(p.service, name)) for p in (price, alone))
            assert own == pytest.approx(other, rel=1e-12)
        for stage, own_stage in zip(alone.stages, price.stages, strict=True):
            assert own_stage.parts == pytest.approx(stage.parts, rel=1e-12)
            assert own_stage.imbalance == pytest.approx(stage.imbalance, rel=1e-12)
            for kind, held in stage.memory.items():
                assert np.array_equal(own_stage.memory[kind], held)
    evaluation = evaluate(instance, layout)
    times = [float(price.service.tpot_s) for price in evaluation.priced.replicas]
    assert times == pytest.approx([float(price.service.tpot_s) for price in together], rel=1e-12)


def test_terms_of_a_stage_are_its_own_layers() -> None:
    asked = {"model": "deepseek-v3", "cluster": "gb200-nvl72", "workload": "chat"}
    instance = resolve_instance(Scenario.model_validate(asked))
    layout = several(instance)
    for replica in layout.replicas:
        if replica.role == "mixed":  # its parts are of a round of several passes
            continue
        price = price_replica(instance, layout, replica)
        for stage, terms in zip(price.stages, stage_terms(instance, layout, replica), strict=True):
            own = [t for t in terms.passes[replica.role] if t.part == "routed_experts"]
            seconds = sum(max(float(t.compute_s), float(t.memory_s)) for t in own)
            # the busiest chip may differ between compute and bytes
            assert seconds == pytest.approx(stage.parts["routed_experts"], rel=1e-6)


def test_many_wide_replicas_are_priced_in_several_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"model": "deepseek-v3", "cluster": "gb200-nvl72", "workload": "chat"}
    instance = resolve_instance(Scenario.model_validate(asked))
    layout = several(instance)
    whole = price_replicas(instance, layout, layout.replicas)
    monkeypatch.setattr("costmodel.replica.stage_times._MOST_TOGETHER", 1)
    apart = price_replicas(instance, layout, layout.replicas)
    for own, other in zip(whole, apart, strict=True):
        assert float(own.service.ttft_s) == pytest.approx(float(other.service.ttft_s), rel=1e-12)
        assert float(own.service.tpot_s) == pytest.approx(float(other.service.tpot_s), rel=1e-12)
    assert list(_together(instance, [])) == []


def test_passes_side_by_side_share_their_lengths() -> None:
    decode = Tokens(decode=3.0, context=4500.0)
    prefill = Tokens(prefill=8000.0, prefill_end=4000.0, prompts=2.0, fill=0.5)
    both = Tokens.side_by_side([decode, prefill], [1, 2])
    assert both.context == 4500.0
    assert both.prefill_end == 4000.0
    assert both.rows.tolist() == [3.0, 8000.0, 8000.0]
    assert both.sampled.tolist() == [3.0, 2.0, 2.0]
    assert np.asarray(both.fill).tolist() == [1.0, 0.5, 0.5]
    with pytest.raises(ValueError, match=r"context \[100.0, 4500.0\]"):
        Tokens.side_by_side([decode, Tokens(decode=1.0, context=100.0)], [1, 1])
