"""Balance batch, balance context, and what the bytes of a weight do to them: T01-T09, T12-T16, T41."""

import pytest

from costmodel.blackboard.aggregate import (
    AggregateModel,
    Machine,
    aggregate_pass,
    kv_bytes_per_token,
    tokens_read,
)
from costmodel.blackboard.balance import (
    attention_crossover,
    balance_batch,
    balance_context,
    kv_bytes_at_balance,
    multiplies_per_weight,
)
from costmodel.blackboard.trains import routed_experts_touched
from costmodel.models import load_model
from costmodel.models.load import read_model
from costmodel.passes.operations import operations_of
from topology import load_chip

#: I = 300 at one byte per weight: FLOP/s = 2 I bandwidth
LECTURE = Machine(flops_per_s=600.0, hbm_bytes_per_s=1.0)


def sparse_model(sparsity, kv=0.0):
    return AggregateModel(active_params=1.0, weight_bytes=sparsity, kv_bytes_per_token=kv)


def v3_moe():
    moe = operations_of(load_model("deepseek-v3")).moe
    assert moe is not None
    return moe


def test_t01_h100_multiplies_300_times_per_bf16_weight():
    assert 285 <= multiplies_per_weight(989e12, 2, 3.35e12) <= 305
    chip = load_chip("h100")
    own = multiplies_per_weight(chip.peak_flops_per_s("bf16"), 2, chip.hbm_bytes_per_s)
    assert 285 <= own <= 305


def test_t02_b200_has_the_same_ratio_in_fp8_and_fp4():
    fp8 = multiplies_per_weight(4.5e15, 1, 8e12)
    fp4 = multiplies_per_weight(9e15, 0.5, 8e12)
    assert 275 <= fp8 <= 290
    assert fp4 == pytest.approx(fp8, rel=0.01)


def test_t03_the_ratio_is_data_not_300():
    assert 150 <= multiplies_per_weight(312e12, 2, 2.0e12) <= 160
    assert 560 <= multiplies_per_weight(920e12, 2, 1.6e12) <= 590


def test_t04_balance_batch_of_the_lecture():
    assert balance_batch(300, 8) == pytest.approx(2400, rel=0.01)


def test_t05_balance_batch_of_deepseek_v3_in_two_ways():
    assert 5300 <= balance_batch(300, 671e9 / 37e9) <= 5700
    moe = v3_moe()
    assert balance_batch(300, moe.num_experts / moe.top_k) == pytest.approx(9600, rel=0.01)


def test_t06_deepseek_runs_above_the_balance_of_its_experts():
    in_flight = 14_800 / 21 * 18
    assert 12_100 <= in_flight <= 13_300
    moe = v3_moe()
    per_expert = in_flight * moe.top_k / moe.num_experts
    assert 378 <= per_expert <= 416
    balance = balance_batch(300, moe.num_experts / moe.top_k)
    assert 1.2 <= in_flight / balance <= 1.45


@pytest.mark.parametrize(
    ("share", "batch"), [(0.25, 3200.0), (0.5, 4800.0), (0.75, 9600.0), (1.0, None)]
)
def test_t07_kv_raises_the_balance_batch(share, batch):
    found = balance_batch(300, 8, share)
    assert found == (None if batch is None else pytest.approx(batch, rel=0.01))


@pytest.mark.parametrize(("sparsity", "worse"), [(8, 2400), (18.1, 5440)])
def test_t08_an_unbatched_token_costs_thousands_of_times_more(sparsity, worse):
    model = sparse_model(sparsity)
    many = 10 * balance_batch(300, sparsity)
    alone = float(aggregate_pass(model, LECTURE, 1).total_s("lecture"))
    together = float(aggregate_pass(model, LECTURE, many).total_s("lecture")) / many
    assert alone / together == pytest.approx(worse, rel=0.02)


def test_t09_waiting_past_the_balance_batch_saves_nothing():
    model = sparse_model(8)
    balance = balance_batch(300, 8)
    per_token, no_overlap = {}, {}
    for factor in (1, 4):
        timed = aggregate_pass(model, LECTURE, factor * balance)
        per_token[factor] = float(timed.total_s("lecture")) / factor
        no_overlap[factor] = float(timed.compute_s + timed.weights_s) / factor
    assert per_token[4] / per_token[1] == pytest.approx(1.0, rel=0.01)
    assert no_overlap[4] / no_overlap[1] == pytest.approx(0.625, rel=0.01)


@pytest.mark.parametrize(("bytes_per_param", "kv"), [(1, 1667), (0.5, 833), (2, 3333)])
def test_t12_kv_bytes_read_from_a_price_step(bytes_per_param, kv):
    found = kv_bytes_at_balance(1e11, bytes_per_param, 300, 2e5)
    assert found == pytest.approx(kv, rel=0.01)
    assert balance_context(1e11, bytes_per_param, 300, found) == pytest.approx(2e5)


def test_t13_two_kilobytes_per_token():
    assert kv_bytes_per_token(1, 8, 128, 1) == 2048


def endless_batch(context_share, combination):
    """Compute share of a pass at a huge batch, at a context in units of the balance context."""
    model = sparse_model(1.0, kv=1 / 300.0)
    context = context_share * balance_context(1.0, 1.0, 300.0, model.kv_bytes_per_token)
    timed = aggregate_pass(model, LECTURE, 1e12, context)
    return float(timed.compute_s / timed.total_s(combination))


def test_t14_flops_utilisation_halves_at_twice_the_balance_context():
    assert endless_batch(2.0, "lecture") == pytest.approx(0.50, rel=0.01)
    assert endless_batch(2.0, "book") == pytest.approx(1 / 3, rel=0.01)


@pytest.mark.parametrize(("context", "cost"), [(1e5, 1.0), (2e5, 1.0), (3e5, 1.5), (4e5, 2.0)])
def test_t15_cost_is_flat_and_then_rises_with_context(context, cost):
    assert 1 / endless_batch(context / 2e5, "lecture") == pytest.approx(cost, rel=0.01)


@pytest.mark.parametrize(("pattern", "ratio"), [("sqrt", 2.0), ("dense", 4.0), ("fixed", 1.0)])
def test_t16_kv_time_at_four_times_the_context(pattern, ratio):
    model = sparse_model(1.0, kv=1.0)
    times = [
        float(aggregate_pass(model, LECTURE, 1, tokens_read(context, pattern)).kv_s)
        for context in (1e5, 4e5)
    ]
    assert times[1] / times[0] == pytest.approx(ratio)


def test_t41_context_at_which_attention_costs_as_much_as_weights():
    dense = read_model(
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 8192,
            "intermediate_size": 4 * 8192,
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
            "num_hidden_layers": 4,
            "vocab_size": 32_000,
            "hidden_act": "silu",
            "max_position_embeddings": 131_072,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
        },
        "dense-8192",
        "a worked example",
    )
    layers = attention_crossover(operations_of(dense), with_head=False)
    assert layers == pytest.approx(65_500, rel=0.02)
    absorbed = attention_crossover(operations_of(load_model("deepseek-v3")), with_head=True)
    assert absorbed == pytest.approx(4360, rel=0.02)


@pytest.mark.parametrize(("tokens", "touched"), [(1, 8), (32, 163), (128, 252)])
def test_experts_that_a_small_batch_touches(tokens, touched):
    assert routed_experts_touched(256, 8, tokens) == pytest.approx(touched, abs=1)
