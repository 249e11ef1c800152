"""``evaluate`` holds a layout to the limits, the tiers and the KV that the question and the layout state."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import KvShare, Layout
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, Scenario, resolve_instance
from costmodel.question.workload import Limits, Slo, Workload
from solver.clock import Clock
from solver.search import search


def question(cluster: str = "nvl-2", **other: Any) -> Instance:
    return resolve_instance(
        Scenario(
            model="llama-3.1-8b",
            cluster=cluster,
            workload=Workload(input_tokens=1000, output_tokens=200),
            slo=Slo(),
            **other,
        )
    )


def broken(found: Evaluation, rule: str) -> list[str]:
    return [violation.message for violation in found.violations if violation.rule == rule]


def test_more_sequences_on_a_rank_than_the_limit() -> None:
    instance = question(limits=Limits(max_sequences_per_rank=16))
    many = evaluate(instance, plain_layout(instance, "mixed", tp=2, batch=160))
    assert broken(many, "limits") == ["160 sequences on a rank, max_sequences_per_rank is 16"]
    few = evaluate(instance, plain_layout(instance, "mixed", tp=2, batch=16))
    assert few.feasible
    best = search(instance, clock=Clock(60)).certificate.bound_usd_per_m_output_tokens
    assert few.usd_per_m_output_tokens is not None
    assert few.usd_per_m_output_tokens >= best * (1 - 1e-9)


def test_prompts_count_as_sequences() -> None:
    instance = question(limits=Limits(max_sequences_per_rank=2, prefill_chunk_tokens=8192))
    found = evaluate(instance, plain_layout(instance, "prefill", tp=1, batch=4))
    assert broken(found, "limits") == ["4 prompts on a rank, max_sequences_per_rank is 2"]


@pytest.mark.parametrize(("chunk", "most"), [(2500, 2), (300, 1)])
def test_more_prompts_than_a_pass_takes(chunk: int, most: int) -> None:
    instance = question(limits=Limits(prefill_chunk_tokens=chunk))
    for stages in (1, 2):
        held = plain_layout(instance, "prefill", tp=1, pp=stages, batch=stages * most)
        assert not broken(evaluate(instance, held), "limits")
        above = plain_layout(instance, "prefill", tp=1, pp=stages, batch=stages * most + 1)
        assert broken(evaluate(instance, above), "limits") == [
            f"{most + 1} prompts of 1,000 tokens in a pass of one rank, which takes {most}, "
            f"prefill_chunk_tokens is {chunk}"
        ]


def test_no_prompt_more_beats_a_bound_on_long_prompts() -> None:
    # 1,000 tokens in passes of 303: one prompt needs four passes, two together would need seven
    instance = question(limits=Limits(prefill_chunk_tokens=303))
    best = search(instance, clock=Clock(60))
    bound = best.certificate.bound_usd_per_m_output_tokens
    for prompts in (1, 2, 3):
        one = plain_layout(instance, "prefill", tp=1, batch=prompts).replicas[0]
        other = plain_layout(instance, "decode", tp=1, batch=64).replicas[0]
        stage = other.stages[0].model_copy(update={"chips": ("r0g1",)})
        kv = tuple(share.model_copy(update={"chip": "r0g1"}) for share in other.kv)
        both = (one, other.model_copy(update={"stages": (stage,), "kv": kv}))
        found = evaluate(instance, Layout(replicas=both))
        assert found.feasible is (prompts == 1)
        if found.feasible:
            assert found.usd_per_m_output_tokens is not None
            assert found.usd_per_m_output_tokens >= bound * (1 - 1e-9)


def test_more_stages_than_the_limit() -> None:
    instance = question("hgx-h100", limits=Limits(max_pipeline_stages=1))
    found = evaluate(instance, plain_layout(instance, "decode", tp=1, pp=8, batch=8))
    assert broken(found, "limits") == ["8 pipeline stages, max_pipeline_stages is 1"]


def test_more_domains_than_asked_for() -> None:
    plain = question("hgx-h100@2")
    layout = plain_layout(plain, "decode", tp=8, pp=2, batch=8)
    assert not broken(evaluate(plain, layout), "limits")
    asked = question("hgx-h100@2", limits=Limits(max_domains_per_replica=1))
    assert broken(evaluate(asked, layout), "limits") == [
        "chips in 2 domains, max_domains_per_replica is 1"
    ]


def in_host(layout: Layout) -> Layout:
    (replica,) = layout.replicas
    kv = tuple(share.model_copy(update={"tier": "host"}) for share in replica.kv)
    return layout.model_copy(update={"replicas": (replica.model_copy(update={"kv": kv}),)})


def test_a_tier_that_the_question_does_not_allow() -> None:
    instance = question()
    assert instance.cluster.usable[0].chip.tier("host") is not None
    layout = in_host(plain_layout(instance, "decode", tp=2, batch=8))
    (message,) = broken(evaluate(instance, layout), "kv_tiers")
    assert message == "KV lies in host; kv_tiers of the question allows none"
    allowed = question(kv_tiers=("host",))
    assert not broken(evaluate(allowed, layout), "kv_tiers")


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.01, 2.0])
def test_stated_bytes_of_kv_are_those_of_the_sequences(factor: float) -> None:
    instance = question()
    layout = search(instance, clock=Clock(60)).layout
    assert evaluate(instance, layout).feasible
    replica = layout.replicas[0]
    first: KvShare = replica.kv[0]
    assert first.bytes
    wrong = first.model_copy(update={"bytes": first.bytes * factor})
    changed = replica.model_copy(update={"kv": (wrong, *replica.kv[1:])})
    replicas = (changed, *layout.replicas[1:])
    found = evaluate(instance, layout.model_copy(update={"replicas": replicas}))
    (message,) = broken(found, "kv_bytes")
    assert f"{first.bytes:.10g}" in message
    unsaid = first.model_copy(update={"bytes": None})
    changed = replica.model_copy(update={"kv": (unsaid, *replica.kv[1:])})
    replicas = (changed, *layout.replicas[1:])
    assert evaluate(instance, layout.model_copy(update={"replicas": replicas})).feasible


def test_what_tiers_cost_rests_on_no_stated_bytes() -> None:
    instance = question(kv_tiers=("host",))
    layout = in_host(plain_layout(instance, "decode", tp=2, batch=8))
    (replica,) = layout.replicas
    kv = tuple(share.model_copy(update={"bytes": 1.0}) for share in replica.kv)
    stated = layout.model_copy(update={"replicas": (replica.model_copy(update={"kv": kv}),)})
    uses = [evaluate(instance, one).kv_tiers for one in (layout, stated)]
    assert uses[0] == uses[1]
    assert uses[0][0].bytes > 1e6
