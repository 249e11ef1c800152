"""The lecture's claims on racks, pipelines and training, read from the tables of these studies."""

from __future__ import annotations

import pytest
from asking import ask, rows

from rackfit.studies.base import Options, Row


def floor_s(chips: int, bandwidth: float) -> float:
    over = {
        "board.chips": [chips],
        "board.weight_bytes": [1e12],
        "board.hbm_bytes_per_s": [bandwidth],
    }
    (row,) = rows("scale-up", over)
    return float(row["weights_s"])


def test_t10_latency_floor_in_the_table() -> None:
    old, new = floor_s(8, 3.35e12), floor_s(64, 8e12)
    assert old == pytest.approx(37.3e-3, rel=0.01)
    assert new == pytest.approx(1.95e-3, rel=0.01)
    assert old / new == pytest.approx(19.1, rel=0.01)


def test_t11_weight_time_falls_with_the_domain_in_the_table() -> None:
    eight, many = rows("scale-up", {"board.chips": [8, 64]})
    assert eight["weights_s"] / many["weights_s"] == pytest.approx(8)


def test_t22_even_experts_leave_eight_chips_idle_in_the_table() -> None:
    (row,) = boundary([1], True)
    assert row["even_ep"] == 64
    assert row["experts_per_chip_at_even_ep"] == 4
    assert row["chips_idle_at_even_ep"] == 8


def boundary(domains: list[int], merged: bool) -> list[Row]:
    over = {"domains": domains, "ratio": [8], "one_copy": [merged], "oversubscription": []}
    return rows("rack-boundary", over, profile="physics")


def test_t23_every_copy_over_racks_in_the_table() -> None:
    found = boundary([1, 2, 4, 8], False)
    slower = [row["exchange_slowdown"] for row in found]
    assert slower == pytest.approx([1, 4, 6, 7], rel=0.02)
    assert [row["remote_copies_per_token"] for row in found[1:]] == pytest.approx([4, 6, 7])
    assert found[1]["busiest_link"].endswith(".nic")


def test_t24_one_copy_per_rack_in_the_table() -> None:
    two, four = boundary([2, 4], True)
    assert two["remote_copies_per_token"] == pytest.approx(0.997, rel=0.005)
    assert four["remote_copies_per_token"] == pytest.approx(2.71, rel=0.005)
    assert 0.95 <= two["exchange_slowdown"] <= 1.1
    every = boundary([2], False)[0]
    assert two["decode_tokens_per_s_per_gpu"] > every["decode_tokens_per_s_per_gpu"]


def condition(**given: float) -> float:
    over = {"stages": [2], **{key: [value] for key, value in given.items()}}
    (row,) = rows("pipeline", over, profile="physics")
    return float(row["hand_off_ratio"])


@pytest.mark.parametrize(
    ("top_k", "layers", "ratio"),
    [(8, 1, 2.0), (4, 1, 1.0), (3, 1, 0.75), (1, 4, 1.0), (1, 1, 0.25), (16, 1, 4), (32, 1, 8)],
)
def test_t25_hand_off_in_the_table(top_k: int, layers: int, ratio: float) -> None:
    same = {"dispatch_bytes": 1, "combine_bytes": 1, "hop_bytes": 1}
    assert condition(ratio=8, top_k=top_k, layers_per_stage=layers, **same) == pytest.approx(ratio)


@pytest.mark.parametrize(("ratio", "layers", "found"), [(8, 1, 1.5), (18, 1, 0.67), (18, 2, 1.33)])
def test_t26_hand_off_of_the_models_own_bytes_in_the_table(
    ratio: float, layers: int, found: float
) -> None:
    """DeepSeek-V3 dispatches FP8, combines and hands on BF16: nothing is given."""
    own = condition(ratio=ratio, top_k=8, layers_per_stage=layers)
    assert own == pytest.approx(found, rel=0.01)


LECTURE = {
    "board.weight_bytes": [1e12], "board.chips": [64], "board.microbatch": [2000],
    "board.context": [1e5], "board.kv_bytes_per_token": [1667], "board.pass_s": [20e-3],
}  # fmt: skip


def pipelines(**given: float) -> list[Row]:
    over = {"board.stages": [1, 2, 4, 8], **LECTURE}
    return rows("pipeline", over | {f"board.{key}": [value] for key, value in given.items()})


def test_t27_stages_change_neither_latency_nor_throughput_in_the_table() -> None:
    found = pipelines()
    assert [row["tpot_s"] for row in found] == pytest.approx([20e-3] * 4, rel=0.001)
    rates = [row["decode_tokens_per_s_per_domain"] for row in found]
    assert rates == pytest.approx([2000 / 20e-3] * 4, rel=0.001)


def test_t28_hops_in_the_table() -> None:
    by_stages = {row["board.stages"]: row["tpot_s"] for row in pipelines(hop_s=2.5e-3)}
    assert by_stages[4] == pytest.approx(30e-3)


@pytest.mark.parametrize(("microbatches", "busy"), [(1, 0.25), (2, 0.5), (4, 1.0), (8, 1.0)])
def test_t29_idle_racks_in_the_table(microbatches: int, busy: float) -> None:
    (row,) = rows("pipeline", {"board.stages": [4], "microbatches": [microbatches]})
    assert row["utilisation"] == pytest.approx(busy)
    (real,) = rows("pipeline", {"stages": [4], "microbatches": [microbatches]})
    assert real["utilisation"] == pytest.approx(busy)


def test_t30_weights_fall_and_kv_does_not_in_the_table() -> None:
    found = pipelines()
    weights = [row["weight_bytes_per_chip"] / 1e9 for row in found]
    assert weights == pytest.approx([15.6, 7.8, 3.9, 1.95], rel=0.01)
    assert [row["kv_bytes_per_chip"] / 1e9 for row in found] == pytest.approx([5.21] * 4, rel=0.01)


def test_t30_so_says_the_evaluator_of_a_real_model() -> None:
    """Layers do not divide evenly, so that the fullest stage falls by a little less than P."""
    found = rows("pipeline", {"stages": [1, 2, 4, 8]}, profile="physics")
    weights = [row["weight_bytes_per_chip"] for row in found]
    assert weights == sorted(weights, reverse=True)
    assert weights[0] / weights[2] > 3
    kv = [row["kv_bytes_per_chip"] for row in found]
    assert max(kv) / min(kv) < 1.06  # 61 layers: the longest of 8 stages has 8, not 7.6
    assert max(row["tpot_s"] for row in found) > found[0]["tpot_s"]


@pytest.mark.parametrize(
    ("cluster", "stated"), [({"board.chips": 8, "board.hbm_bytes": 80e9}, 0.64e12), ({}, 13.8e12)]
)
def test_t31_capacity_in_the_table(cluster: dict[str, float], stated: float) -> None:
    over = {"board.stages": [1], "board.weight_bytes": [1e12]}
    (row,) = rows("pipeline", over | {key: [value] for key, value in cluster.items()})
    assert row["domain_hbm_bytes"] == pytest.approx(stated, rel=0.05)
    if not cluster:
        assert row["weights_share_of_domain"] == pytest.approx(0.07, abs=0.005)
        assert 5 * row["weights_share_of_domain"] < 1 < 20 * row["weights_share_of_domain"]


@pytest.mark.parametrize("tpot", [pytest.param(0.005, marks=pytest.mark.slow), 0.02])
def test_t32_a_rack_for_speed_is_one_wide_replica(tpot: float) -> None:
    """Prompts are cached and the clock is short: decode is what the rack is bought for."""
    cached = {"input_tokens": 4000, "cached_tokens": 3999, "output_tokens": 1000}
    result = ask(
        "scale-up", {"cluster.domain_size": [72]}, Options(gap=0.1, time_limit_s=60),
        workload=cached, slo={"tpot": tpot}, profile="physics",
    )  # fmt: skip
    (row,) = result.rows
    assert row["error"] == ""
    assert 64 <= row["ep"] <= 72
    assert (row["pp"], row["tp"]) == (1, 1)
    assert row["domains_per_stage"] == 1
    assert row["output_tokens_per_s"] / row["num_domains"] > 128_000


def test_t34_equal_spend_in_the_table() -> None:
    (row,) = rows("training-balance", {"share": ["1:1:1"], "days": [60]})
    assert row["reinforcement_tokens"] == pytest.approx(row["pretraining_tokens"] / 1.5, rel=0.01)
    assert row["inference_tokens"] == pytest.approx(row["pretraining_tokens"], rel=0.01)
    shares = [row[f"{kind}_cost_share"] for kind in ("pretraining", "reinforcement", "inference")]
    assert shares == pytest.approx([1 / 3] * 3)


def test_t35_over_training_in_the_table() -> None:
    over = {"share": ["1:1:1"], "days": [60], "tokens_per_s": [5e7], "active_params": [100e9]}
    (row,) = rows("training-balance", over)
    assert row["inference_tokens"] == pytest.approx(2.59e14, rel=0.01)
    assert row["chinchilla_tokens"] == pytest.approx(2e12)
    assert 90 <= row["over_training"] <= 140
