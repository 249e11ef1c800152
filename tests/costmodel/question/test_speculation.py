"""Speculative decoding: tokens per pass, FLOPs, experts reached, bytes held, and what it leaves alone."""

from dataclasses import replace

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.experts.moe_load import cut_shares, touch_probability
from costmodel.layout.layout import Layout
from costmodel.layout.plain_layout import plain_layout
from costmodel.models.summary import summarise
from costmodel.passes.communication import GroupRates
from costmodel.passes.group import ChipGroup
from costmodel.passes.pass_time import pass_time
from costmodel.passes.tokens import Tokens, even_shares
from costmodel.question.instance import instance_from_description, resolve_instance
from costmodel.question.profile import Efficiency
from costmodel.question.scenario import Scenario
from costmodel.question.speculation import Speculative
from costmodel.question.workload import Limits, Workload
from costmodel.replica import memory
from costmodel.replica.serving import schedule
from topology.catalogue import checked
from topology.errors import InstanceError

BASE = Scenario(
    model="glm-4.5-air",
    cluster="hgx-h200",
    workload=Workload(input_tokens=2000, output_tokens=500, expert_load="uniform"),
    profile="physics",
)
NO_TRAFFIC = GroupRates(*(np.zeros(()) for _ in GroupRates.__dataclass_fields__))


def priced(drafts=None, acceptance=0.0, role="decode", batch=64):
    speculative = (
        None if drafts is None else Speculative(draft_tokens=drafts, acceptance=acceptance)
    )
    instance = resolve_instance(BASE.model_copy(update={"speculative": speculative}))
    layout = plain_layout(instance, role, tp=1, attention_dp=8, batch=batch)
    return instance, evaluate(instance, layout)


def test_tokens_emitted_per_pass():
    assert Speculative(draft_tokens=1, acceptance=0.85).emitted == pytest.approx(1.85)
    assert Speculative(draft_tokens=3, acceptance=0.5).emitted == pytest.approx(1.875)
    assert Speculative(draft_tokens=3, acceptance=0.0).emitted == 1
    assert Speculative(draft_tokens=3, acceptance=1.0).emitted == 4


def test_acceptance_may_fall_from_draft_to_draft():
    drawn = np.random.default_rng(0).random((200_000, 3)) < [0.9, 0.6, 0.3]
    simulated = 1 + np.cumprod(drawn, axis=1).sum(axis=1).mean()
    curve = Speculative(draft_tokens=3, acceptance=(0.9, 0.6, 0.3))
    assert curve.emitted == pytest.approx(1 + 0.9 + 0.9 * 0.6 + 0.9 * 0.6 * 0.3)
    assert curve.emitted == pytest.approx(simulated, rel=0.005)
    assert Speculative(draft_tokens=2, acceptance="0.9,0.6,0.3").accepted == (0.9, 0.6)
    assert (
        Speculative(draft_tokens=3, acceptance=(0.5,) * 3).emitted
        == Speculative(draft_tokens=3, acceptance=0.5).emitted
    )


@pytest.mark.parametrize(
    ("acceptance", "message"),
    [
        ("1.5", r"acceptance: must be at most 1, got '1.5'"),
        ("0.9,1.2", r"acceptance\[1\]: must be at most 1, got '1.2'"),
        ("0.9,x", r"acceptance\[1\]: expected a number, got 'x'"),
        ([0.9], r"speculative: acceptance: 1 probabilities for 2 draft_tokens; give one for each"),
    ],
)
def test_a_wrong_acceptance_is_named_once(acceptance, message):
    data = {"model": "glm-4.5-air", "cluster": "hgx-h200", "workload": "chat"}
    asked = data | {"speculative": {"draft_tokens": 2, "acceptance": acceptance}}
    with pytest.raises(InstanceError, match=message) as caught, checked("question"):
        Scenario.model_validate(asked)
    assert len(caught.value.problems) == 1


def test_drafts_multiply_tokens_not_reads_of_the_cache():
    """Per layer: twice the FLOPs, the same bytes of KV, one pass's weights; experts of 2 B tokens."""
    operations = priced()[0].operations
    chip = priced()[0].cluster.usable[0].chip
    layers = [(kind, float(len(kind.layers))) for kind in operations.kinds]

    def terms(verified):
        tokens = Tokens(decode=8.0, context=2250.0, verified=verified)
        timed = pass_time(
            ChipGroup.of(operations, 1, 1, chip, Efficiency(), NO_TRAFFIC), layers, tokens,
            [None] * len(layers), with_head=False, record=True,
        )  # fmt: skip
        return timed.terms

    for one, two in zip(terms(1.0), terms(2.0), strict=True):
        assert two.compute_s == pytest.approx(2 * one.compute_s)
        if one.part == "norms":
            assert two.memory_s == pytest.approx(2 * one.memory_s)
        else:
            assert two.memory_s == pytest.approx(one.memory_s)


def test_a_pass_gives_what_was_accepted():
    """The same pass: TPOT is its time over the tokens emitted, whatever the acceptance."""
    none, some = priced(1, 0.0)[1], priced(1, 0.9)[1]
    assert some.tpot_s * 1.9 == pytest.approx(none.tpot_s, rel=1e-12)
    assert some.requests_per_s == pytest.approx(1.9 * none.requests_per_s, rel=1e-12)


def test_useless_drafts_cost_time_and_good_ones_pay_at_small_batch():
    assert priced(1, 0.0)[1].tpot_s > priced()[1].tpot_s
    assert priced(1, 0.85, batch=8)[1].tpot_s < priced(batch=8)[1].tpot_s
    # more drafts, longer passes
    passes = [priced(k, 0.0)[1].tpot_s for k in (1, 2, 3)]
    assert passes == sorted(passes)


def test_a_mixed_replica_prefills_as_many_as_it_finishes():
    workload = BASE.workload
    plain = schedule("mixed", workload, Limits(), 64.0)
    faster = schedule(
        "mixed", workload, Limits(), 64.0, Speculative(draft_tokens=1, acceptance=0.5)
    )
    assert faster.events * faster.prompts == pytest.approx(1.5 * plain.events * plain.prompts)
    assert faster.rows() == max(128, plain.rows())


def test_the_module_is_held_in_hbm():
    """All its bytes over the stage's chips: the module's, its KV, and not the main model's tables."""
    instance, found = priced(1, 0.85)
    plain = priced()[1]
    module = summarise(instance.model).mtp_bytes
    one = float(memory.draft_weight_bytes(instance.operations, 1.0, 1.0))
    assert one == pytest.approx(module, rel=1e-9)
    before, after = (e.priced.replicas[0].stages[0].memory for e in (plain, found))
    eighth = float(memory.draft_weight_bytes(instance.operations, 1.0, 8.0))
    assert after["weights"][0] - before["weights"][0] == pytest.approx(eighth, rel=1e-6)
    kv = float(memory.draft_kv_bytes(instance.operations, 1.0, instance.final_context))
    assert after["kv"][0] / before["kv"][0] == pytest.approx(47 / 46 * 2501 / 2500, rel=1e-9)
    assert kv * 8 == pytest.approx(after["kv"][0] / 47, rel=1e-9)


def test_experts_of_the_module_are_even():
    moe = priced()[0].operations.moe
    shares = even_shares(moe, np.array([8.0, 3.0]), np.array([100.0, 100.0]))
    assert shares.load[:, 0, 0] == pytest.approx([1 / 8, 43 / 128])
    chance = touch_probability(np.array([1 / 128]), moe.top_k, 100.0, 1.0)[0]
    assert shares.touched[:, 0, 0] == pytest.approx([16 * chance, 43 * chance])


def test_experts_of_the_module_are_cut_as_those_of_the_layers():
    """Over six chips, 64 experts: not eleven of the module's on a chip, and no noise of whole ones."""
    asked = BASE.model_copy(
        update={
            "model": "glm-4.7-flash",
            "speculative": Speculative(draft_tokens=1, acceptance=0.8),
        }
    )
    instance = resolve_instance(asked)
    operations, chip = instance.operations, instance.cluster.usable[0].chip
    moe = operations.moe
    tokens = Tokens(decode=8.0, context=2250.0, verified=2.0)
    noisy = Efficiency(routing_noise=1.0)
    group = ChipGroup.of(operations, 1, 6, chip, noisy, NO_TRAFFIC, 0.0)
    drafted = pass_time(group, [], tokens, []).parts["routed_experts"]
    kind = operations.kinds[-1]
    shares = cut_shares(
        touch_probability(np.full((1, 64), 1 / 64), moe.top_k, 8 * 2 * 6, 1.0), moe, 6
    )
    layer = pass_time(group, [(kind, 1.0)], tokens, [shares], with_head=False)
    assert drafted == pytest.approx(layer.parts["routed_experts"], rel=1e-12)

    whole = plain_layout(instance, "decode", tp=1, attention_dp=6, batch=12)
    (replica,) = whole.replicas
    stages = tuple(
        stage.model_copy(update={"slots_per_chip": 0, "expert_map": None})
        for stage in replica.stages
    )
    shape = replica.shape.model_copy(update={"ep": 1})
    cut = Layout(replicas=(replica.model_copy(update={"stages": stages, "shape": shape}),))
    held = [
        evaluate(instance, one).priced.replicas[0].stages[0].memory["weights"][0]
        for one in (whole, cut)
    ]
    assert held[0] - held[1] == pytest.approx((11 - 64 / 6) * moe.expert_bytes, rel=1e-6)


def test_time_grows_with_the_batch_and_not_faster():
    times = [priced(2, 0.7, batch=batch)[1].tpot_s for batch in (8, 16, 64, 256, 1024)]
    for (small, before), (large, after) in zip(
        zip((8, 16, 64, 256), times, strict=False), zip((16, 64, 256, 1024), times[1:], strict=True),
        strict=True,
    ):  # fmt: skip
        assert before <= after <= before * large / small * (1 + 1e-12)


def test_a_model_without_modules_is_refused():
    scenario = BASE.model_copy(
        update={"model": "qwen3-32b", "speculative": Speculative(acceptance=0.8)}
    )
    with pytest.raises(InstanceError, match=r"speculative: .*no MTP module"):
        resolve_instance(scenario)


def test_nothing_is_said_of_drafts_where_there_are_none():
    """Digests of instances without drafts are what they were before drafts existed."""
    instance = priced()[0]
    assert "speculative" not in instance.describe()["scenario"]
    drafting = priced(1, 0.85)[0]
    again = instance_from_description(drafting.describe(), "here")
    assert again.speculative == drafting.speculative
    assert again.digest == drafting.digest != instance.digest
    assert replace(drafting, scenario=instance.scenario).digest == instance.digest


def test_decoding_keeps_drafted_tokens_and_prefill_the_prompt():
    instance, _ = priced(drafts=3)
    assert instance.kept_context("prefill") == 2000
    assert instance.kept_context("decode") == instance.kept_context("mixed") == 2500 + 3
