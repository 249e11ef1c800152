"""Times of whole passes and what they cost: T10, T11, T17-T20, T36, T40, T42, T46, T58."""

import pytest

from costmodel.blackboard.aggregate import (
    AggregateModel,
    Machine,
    aggregate_pass,
    drain_s,
    usd_per_m_tokens,
)
from costmodel.blackboard.trains import (
    evicted_tokens_per_step,
    prefill_per_decode,
    train_latency,
)
from topology import load_chip, load_cluster

V5E = Machine(flops_per_s=1.97e14, hbm_bytes_per_s=8.1e11)


def weights_s(num_bytes, chips, bandwidth):
    model = AggregateModel(active_params=0.0, weight_bytes=num_bytes)
    return float(aggregate_pass(model, Machine(1.0, bandwidth).times(chips), 1).total_s("lecture"))


def test_t10_latency_floor_of_a_terabyte():
    old, new = weights_s(1e12, 8, 3.35e12), weights_s(1e12, 64, 8e12)
    assert old == pytest.approx(37.3e-3, rel=0.01)
    assert new == pytest.approx(1.95e-3, rel=0.01)
    assert old / new == pytest.approx(19.1, rel=0.01)


def test_t11_weight_time_falls_with_the_scale_up():
    assert weights_s(1e12, 8, 3e12) / weights_s(1e12, 64, 3e12) == pytest.approx(8)


@pytest.mark.parametrize(
    ("chip", "hbm", "rate", "milliseconds"),
    [
        ("V100", 32e9, 0.9e12, 36),
        ("A100-40", 40e9, 1.555e12, 25.7),
        ("A100-80", 80e9, 2.0e12, 40),
        ("H100", 80e9, 3.35e12, 23.9),
        ("H200", 141e9, 4.8e12, 29.4),
        ("B200", 192e9, 8e12, 24),
        ("B300", 288e9, 8e12, 36),
        ("Rubin", 288e9, 20e12, 14.4),
        ("Rubin-22", 288e9, 22e12, 13.1),
        ("TPU v4", 32e9, 1.2e12, 26.7),
        ("TPU v5e", 16e9, 8.1e11, 19.8),
        ("TPU v5p", 96e9, 2.8e12, 34.3),
        ("TPU v6e", 32e9, 1.6e12, 20),
    ],
)
def test_t17_drain_time(chip, hbm, rate, milliseconds):
    assert drain_s(hbm, rate) * 1e3 == pytest.approx(milliseconds, rel=0.03), chip


@pytest.mark.parametrize(
    ("name", "milliseconds"), [("h100", 23.9), ("h200", 29.4), ("tpu-v4", 26.7), ("tpu-v6e", 20)]
)
def test_t17_drain_time_of_the_catalogue_is_near(name, milliseconds):
    # the catalogue counts GiB where the source counts GB
    chip = load_chip(name)
    assert drain_s(chip.hbm_bytes, chip.hbm_bytes_per_s) * 1e3 == pytest.approx(
        milliseconds, rel=0.08
    )


def test_t18_waiting_for_the_next_pass():
    latency = train_latency(20e-3)
    assert latency.worst_s == pytest.approx(40e-3)
    assert latency.mean_s == pytest.approx(30e-3)
    assert latency.best_s == pytest.approx(20e-3)


@pytest.mark.parametrize(("period", "rate"), [(1 / 64, 128_000), (20e-3, 100_000)])
def test_t19_tokens_per_second(period, rate):
    model = AggregateModel(active_params=0.0, weight_bytes=period)
    timed = aggregate_pass(model, Machine(1.0, 1.0), 2000)
    assert 2000 / float(timed.total_s("lecture")) == pytest.approx(rate)


def test_t20_dollars_per_million_tokens():
    assert usd_per_m_tokens(64, 2.0, 128_000) == pytest.approx(0.278, rel=0.01)


@pytest.mark.parametrize(("length", "cost"), [(1, 5.0), (2, 2.5), (5, 1.0), (10, 1.0)])
def test_t36_prefill_spreads_the_memory_time_over_its_tokens(length, cost):
    model = AggregateModel(active_params=0.5, weight_bytes=5.0)
    timed = aggregate_pass(model, Machine(1.0, 1.0), 1, tokens_per_sequence=length)
    assert float(timed.total_s("lecture")) / length == pytest.approx(cost)


def test_t40_fast_mode_is_a_small_batch():
    batch, kv_over_weights = 1500.0, 1.8
    model = AggregateModel(0.0, weight_bytes=1.0, kv_bytes_per_token=kv_over_weights / batch)
    slow, fast = (
        float(aggregate_pass(model, Machine(1.0, 1.0), b, 1.0).total_s("lecture"))
        for b in (batch, batch / 15)
    )
    assert slow / fast == pytest.approx(2.5, rel=0.02)
    assert fast / (batch / 15) / (slow / batch) == pytest.approx(6.0, rel=0.02)


@pytest.mark.parametrize(("batch", "milliseconds"), [(4, 2.57), (256, 21.05)])
def test_t42_sb14_30b_on_v5e_4x4(batch, milliseconds):
    model = AggregateModel(30e9, 30e9, 100e3)
    timed = aggregate_pass(model, V5E.times(16), batch, 8192)
    assert float(timed.total_s("book")) * 1e3 == pytest.approx(milliseconds, rel=0.01)


LLAMA_13B_BATCHES = [1, 8, 16, 32, 64, 240]


@pytest.mark.parametrize(
    ("cache", "times"),
    [
        (6.7e9, [4.98, 12.13, 20.30, 36.65, 69.33, 249.09]),
        (1.34e9, [4.17, 5.60, 7.23, 10.50, 17.04, 52.99]),
    ],
)
def test_t42_sb15_sb16_llama_13b_on_eight_v5e(cache, times):
    model = AggregateModel(13e9, 26e9, cache / 8192)
    machine = Machine(1.97e14, 8.2e11).times(8)
    for batch, milliseconds in zip(LLAMA_13B_BATCHES, times, strict=True):
        found = float(aggregate_pass(model, machine, batch, 8192).total_s("book"))
        assert found * 1e3 == pytest.approx(milliseconds, rel=0.01)


def test_t42_sb18_70b_on_v5e_4x2():
    model = AggregateModel(70e9, 70e9, 163_840)
    timed = aggregate_pass(model, V5E.times(8), 32, 8192)
    assert float(timed.total_s("book")) * 1e3 == pytest.approx(17.3, rel=0.01)


def test_t42_sb20_a_full_hbm_step():
    assert drain_s(16e9, 8.2e11) * 1e3 == pytest.approx(19.5, rel=0.01)


def test_t46_prefill_eviction_and_servers():
    model = AggregateModel(70e9, 140e9)
    machine = Machine(0.4 * 1.97e14, 8.1e11).times(16)
    prefill = float(aggregate_pass(model, machine, 1, tokens_per_sequence=8192).total_s("lecture"))
    assert prefill == pytest.approx(0.91, rel=0.01)
    assert evicted_tokens_per_step(32, 8192, 4096) == pytest.approx(96)
    assert prefill_per_decode(0.91, 19e-3, 32, 512) == pytest.approx(2.99, rel=0.01)


def test_t58_the_book_takes_twice_the_lecture_at_the_balance_context():
    model = AggregateModel(0.5, 1e-9, 1.0)
    timed = aggregate_pass(model, Machine(1.0, 1.0), 1e6, 1.0)
    assert float(timed.total_s("book") / timed.total_s("lecture")) == pytest.approx(2.0)


def test_t31_scale_up_groups_hold_what_the_source_says():
    node = sum(chip.chip.hbm_bytes for chip in load_cluster("hgx-h100").chips)
    assert node == pytest.approx(0.64e12, rel=0.08)  # the catalogue counts GiB
    rack = 72 * 192e9
    own = sum(chip.chip.hbm_bytes for chip in load_cluster("gb200-nvl72").chips)
    assert 13.3e12 <= rack <= 13.9e12
    assert own == pytest.approx(rack, rel=0.05)
    assert 1e12 / own == pytest.approx(0.07, abs=0.005)
    assert 5e12 < own < 20e12
