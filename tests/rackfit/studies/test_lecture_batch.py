"""The lecture's claims on batch and context, read from the tables of these studies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from asking import rows

#: 300 multiplications per load of a one-byte weight
LECTURE = {"board.intensity": [300], "board.bytes_per_param": [1]}


def board(**given: float) -> dict[str, list[object]]:
    return {**LECTURE, **{f"board.{key}": [value] for key, value in given.items()}}


def test_t04_balance_batch_in_the_table() -> None:
    (row,) = rows("batch", board(batch=2400, sparsity=8, context_share=0))
    assert row["balance_batch"] == pytest.approx(2400, rel=0.01)


def test_t05_balance_batch_of_deepseek_v3_in_the_table() -> None:
    (row,) = rows("batch", board(batch=9600, context_share=0), model="deepseek-v3")
    assert 5300 <= row["balance_batch"] <= 5700
    assert row["balance_batch_experts"] == pytest.approx(9600, rel=0.01)


def test_t06_deepseeks_service_against_the_table() -> None:
    in_flight = 14_800 / 21 * 18
    (row,) = rows("batch", board(batch=in_flight), model="deepseek-v3")
    assert 12_100 <= row["batch"] <= 13_300
    assert 378 <= row["tokens_per_expert"] <= 416
    assert 1.2 <= row["batch"] / row["balance_batch_experts"] <= 1.45


@pytest.mark.parametrize(
    ("share", "batch"), [(0.25, 3200.0), (0.5, 4800.0), (0.75, 9600.0), (1.0, None)]
)
def test_t07_kv_raises_the_balance_batch_of_the_table(share: float, batch: float | None) -> None:
    (row,) = rows("batch", board(batch=1, sparsity=8, context_share=share))
    assert row["balance_batch"] == (None if batch is None else pytest.approx(batch, rel=0.01))


@pytest.mark.parametrize(("sparsity", "worse"), [(8, 2400), (18.1, 5440)])
def test_t08_unbatched_cost_in_the_table(sparsity: float, worse: float) -> None:
    over = board(sparsity=sparsity, kv_bytes_per_token=0, context_share=0)
    over["board.batch"] = [1, 3000 * sparsity]
    alone, together = rows("batch", over)
    ratio = alone["usd_per_m_output_tokens"] / together["usd_per_m_output_tokens"]
    assert ratio == pytest.approx(worse, rel=0.02)
    assert alone["cost_over_endless_batch"] == pytest.approx(worse, rel=0.02)


def test_t18_waits_in_the_table() -> None:
    (row,) = rows("batch", board(batch=2000, pass_s=20e-3))
    waits = [row[f"wait_{name}_s"] for name in ("best", "mean", "worst")]
    assert waits == pytest.approx([20e-3, 30e-3, 40e-3])


@pytest.mark.parametrize(("period", "rate"), [(1 / 64, 128_000), (20e-3, 100_000)])
def test_t19_tokens_per_second_in_the_table(period: float, rate: float) -> None:
    (row,) = rows("batch", board(batch=2000, pass_s=period))
    assert row["output_tokens_per_s"] == pytest.approx(rate)


def test_t20_dollars_in_the_table() -> None:
    (row,) = rows("batch", board(batch=2000, pass_s=1 / 64, chips=64, usd_per_chip_hour=2))
    assert row["usd_per_m_output_tokens"] == pytest.approx(0.278, rel=0.01)


def test_t40_fast_mode_in_the_table() -> None:
    over = board(active_params=1e-3, weight_bytes=1e12, context=1, chips=1)
    over |= {"board.kv_bytes_per_token": [1.8e12 / 1500], "board.batch": [100, 1500]}
    fast, slow = rows("batch", over)
    assert slow["kv_s"] / slow["weights_s"] == pytest.approx(1.8)
    assert slow["tpot_s"] / fast["tpot_s"] == pytest.approx(2.5, rel=0.02)
    dearer = fast["usd_per_m_output_tokens"] / slow["usd_per_m_output_tokens"]
    assert dearer == pytest.approx(6.0, rel=0.02)


@pytest.mark.parametrize(("element", "kv"), [(1, 1667), (0.5, 833), (2, 3333)])
def test_t12_kv_bytes_of_a_price_step_in_the_table(element: float, kv: float) -> None:
    over = board(active_params=1e11, price_step=200_000, context=1000)
    (row,) = rows("context", over | {"board.bytes_per_param": [element]})
    assert row["kv_bytes_at_price_step"] == pytest.approx(kv, rel=0.01)


def test_t13_two_kilobytes_in_the_table() -> None:
    (row,) = rows("context", board(context=1000, kv_shape="1x8x128x1"))
    assert row["kv_bytes_per_token"] == 2048


def test_t14_utilisation_at_twice_the_balance_context_in_the_table() -> None:
    (row,) = rows(
        "context", board(active_params=1e11, kv_bytes_per_token=1e11 / 300 / 1e5, context=200_000)
    )
    assert row["balance_context"] == pytest.approx(1e5)
    assert row["utilisation_lecture"] == pytest.approx(0.50, rel=0.01)
    assert row["utilisation_book"] == pytest.approx(0.33, rel=0.02)


def test_t15_cost_flat_then_linear_in_the_table() -> None:
    over = board(active_params=1e11, kv_bytes_per_token=1e11 / 300 / 2e5)
    over["board.context"] = [100_000, 200_000, 300_000, 400_000]
    found = rows("context", over)
    assert [r["cost_over_compute"] for r in found] == pytest.approx([1, 1, 1.5, 2], rel=0.01)
    costs = [r["usd_per_m_output_tokens"] for r in found]
    assert costs[3] / costs[0] == pytest.approx(2, rel=0.01)


@pytest.mark.parametrize(("pattern", "ratio"), [("sqrt", 2.0), ("dense", 4.0), ("fixed", 1.0)])
def test_t16_reading_patterns_in_the_table(pattern: str, ratio: float) -> None:
    over = {"board.context": [100_000, 400_000], "board.read": [pattern]}
    short, long = rows("context", over)
    assert long["kv_s_per_token"] / short["kv_s_per_token"] == pytest.approx(ratio)


def test_t41_attention_crossover_in_the_table(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192,
        "intermediate_size": 4 * 8192, "num_attention_heads": 64, "num_key_value_heads": 64,
        "num_hidden_layers": 4, "vocab_size": 32_000, "hidden_act": "silu",
        "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    (dense,) = rows("context", {"board.context": [1000]}, model=str(path))
    assert dense["attention_crossover_layers_tokens"] == pytest.approx(65_500, rel=0.02)
    (absorbed,) = rows("context", {"board.context": [1000]}, model="deepseek-v3")
    assert absorbed["attention_crossover_tokens"] == pytest.approx(4360, rel=0.02)
    (sparse,) = rows("context", {"board.context": [1000]}, model="deepseek-v3.2")
    assert "attention_crossover_tokens" not in sparse
