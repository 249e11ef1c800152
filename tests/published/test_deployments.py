"""Published systems against the roofline: T50-T54, T56, T57."""

import pytest

from costmodel.blackboard.aggregate import (
    AggregateModel,
    Machine,
    aggregate_pass,
    model_flops_utilisation,
)
from costmodel.blackboard.trains import servers_for
from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.models import load_model
from costmodel.models.summary import summarise
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from topology import load_cluster

TPU_V4 = Machine(275e12, 1200e9)


@pytest.mark.parametrize(
    ("params", "chips", "tokens", "seconds", "stated"),
    [
        (540e9, 64, 2048, 0.29, 43),
        (540e9, 64, 64 * 64, 1.82, 14),
        (540e9, 64, 512 * 2048, 85.2, 76),
        (540e9, 64, 512 * 64, 6.0, 33),
        (62e9, 16, 2048, 0.16, 36),
        (62e9, 16, 32 * 64, 0.73, 8),
        (62e9, 32, 512 * 2048, 20.2, 73),
        (62e9, 8, 512 * 64, 5.1, 37),
    ],
)
def test_t50_flops_utilisation_of_palm(params, chips, tokens, seconds, stated):
    found = model_flops_utilisation(params, tokens, seconds, chips * 275e12)
    assert 100 * found == pytest.approx(stated, abs=1)


@pytest.mark.parametrize(
    ("element", "batch", "step_s"),
    [(1, 64, 1.82 / 64), (2, 64, 36.9e-3), (2, 512, 6.0 / 64)],
)
def test_t51_decode_roofline_of_palm_is_a_quarter_to_a_half_of_the_time(element, batch, step_s):
    model = AggregateModel(540e9, 540e9 * element, 2 * 118 * 256 * 2)
    timed = aggregate_pass(model, TPU_V4.times(64), batch, 2048 + 32)
    bound = float(timed.total_s("lecture"))
    assert bound <= step_s
    assert 0.20 <= bound / step_s <= 0.50


@pytest.mark.parametrize(("element", "batch", "seconds"), [(1, 1, 0.29), (2, 512, 85.2)])
def test_t51_prefill_roofline_of_palm(element, batch, seconds):
    model = AggregateModel(540e9, 540e9 * element, 2 * 118 * 256 * 2)
    timed = aggregate_pass(model, TPU_V4.times(64), batch, 2048, tokens_per_sequence=2048)
    bound = float(timed.total_s("lecture"))
    assert bound <= seconds
    assert 0.35 <= bound / seconds <= 0.80


#: FasterTransformer, 530B on A100-80 in FP16: total ms at 20 input + 8 output tokens, batch 1,
#: and ms per output token (60+20 less 20+8, over 12)
FASTER_TRANSFORMER = {"TP32": (431, 50.5), "TP16": (565, 67.8), "TP8xPP3": (842, 103.6)}


def faster_transformer_floor(tp):
    model = AggregateModel(530e9, 1.06e12)
    return 1e3 * float(aggregate_pass(model, Machine(312e12, 2e12).times(tp), 1).total_s("lecture"))


def test_t52_tensor_parallelism_cuts_latency_and_pipelining_does_not():
    floors = {"TP32": 32, "TP16": 16, "TP8xPP3": 8}
    found = {name: faster_transformer_floor(tp) for name, tp in floors.items()}
    assert sorted(found, key=found.__getitem__) == sorted(
        FASTER_TRANSFORMER, key=lambda name: FASTER_TRANSFORMER[name][0]
    )
    assert found["TP16"] / found["TP32"] == pytest.approx(2)
    assert found["TP8xPP3"] / found["TP32"] == pytest.approx(4)
    for name, (_, step) in FASTER_TRANSFORMER.items():
        assert 1.5 <= step / found[name] <= 3.1


def test_t53_pipelining_wins_per_chip_at_a_large_batch():
    def tokens_per_s_per_chip(chips, milliseconds):
        return 256 * 8 / (milliseconds / 1e3) / chips

    assert tokens_per_s_per_chip(24, 9614) > tokens_per_s_per_chip(32, 11_232)


def ep144():
    scenario = Scenario(
        model="deepseek-v3",
        cluster="hgx-h800@18",
        profile="physics",
        workload=Workload(input_tokens=4100, output_tokens=1778, expert_load="uniform"),
    )
    instance = resolve_instance(scenario)
    assert instance.workload.decode_context == pytest.approx(4989)
    layout = plain_layout(
        instance, "decode", tp=1, attention_dp=144, batch=88 * 144, redundant_experts=32
    )
    return instance, layout


def test_t54_decode_floor_of_deepseek_v3_on_144_chips():
    instance, layout = ep144()
    parts = evaluate(instance, layout).priced.replicas[0].stages[0].parts
    traffic = ("dispatch", "combine")
    memory_s = sum(seconds for part, seconds in parts.items() if part not in traffic)
    assert 14e-3 <= memory_s <= 18e-3
    cluster = instance.cluster
    rate = cluster.rate(
        "dispatch", [c.id for c in cluster.chips], top_k=8, one_copy_per_domain=False
    )
    # every copy over its own 50 GB/s NIC at the 39 GB/s that was measured
    sourced = 58 * 88 * 7168 * (1 + 2)
    exchange_s = rate.s_per_byte * 50 / 39 * sourced
    assert 20e-3 <= exchange_s <= 25e-3
    assert memory_s + exchange_s <= 50e-3


def test_t56_deepseek_fleet():
    decode = servers_for(168e9, 14_800)
    prefill = servers_for(608e9, 73_700)
    assert decode == pytest.approx(131, abs=1)
    assert prefill == pytest.approx(95, abs=1)
    gpus = len(load_cluster("hgx-h800").chips)
    assert 226.75 * gpus * 2 * 24 == pytest.approx(87_072)
    assert decode + prefill == pytest.approx(226.75, abs=1)


def test_t57_deepseek_v3_from_its_config():
    summary = summarise(load_model("deepseek-v3"))
    assert summary.total_params == pytest.approx(671e9, rel=0.002)
    assert 36.5e9 <= summary.active_params_no_input_embedding <= 37.5e9
    assert summary.kv_bytes_per_token == 70_272
