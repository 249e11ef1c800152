"""The lecture's claims on idle KV and token prices, read from the tables of these studies."""

from __future__ import annotations

from typing import Any

import pytest
from asking import ask, rows

from rackfit.studies.base import Row

#: tiers of the lecture, and devices of 2026 (capacity over bandwidth)
LECTURE_TIERS = "hbm=0.02+ddr=5+flash=60+disk=3600"
DEVICES = {
    "lpddr": 480e9 / 0.5e12,
    "ddr5": 2e12 / 0.4e12,
    "nvme": 3.84e12 / 14e9,
    "qlc": 30e12 / 7e9,
    "hdd": 24e12 / 0.28e9,
}


def board(name: str, **given: Any) -> Row:
    keys = {"list": "prices"}
    over = {}
    for key, value in given.items():
        family, _, rest = key.partition("__")
        over[f"{keys.get(family, 'board')}.{rest or family}"] = [value]
    (row,) = rows(name, over)
    return row


def test_t33_the_fewest_stages_that_hold_a_model_in_the_table() -> None:
    """810 GB of dense weights on nodes of 687 GB: two nodes each, and more stages or nodes only where that pays."""
    stages = "limits.max_pipeline_stages"
    base = {"model": "llama-3.1-405b", "workload": "chat", "slo": {}}
    over = {stages: [1, 2, 8]}
    table = {r[stages]: r for r in ask("grid", over, cluster="hgx-h100@4", **base).rows}
    assert (table[1]["pp"], table[1]["tp"]) == (1, 16)  # a rank of two nodes
    assert (table[2]["pp"], table[2]["replica_chips"]) == (2, 16)
    more = table[8]
    assert more["replica_chips"] in (16, 32)
    cheaper = more["usd_per_m_output_tokens"] < table[2]["bound_usd_per_m_output_tokens"]
    assert (more["pp"], more["replica_chips"]) == (2, 16) or cheaper


def test_t36_output_over_input_in_the_table() -> None:
    over: dict[str, list[Any]] = {
        "board.tokens_per_pass": [1, 2, 5, 10],
        "board.memory_over_compute": [5],
    }
    table = rows("prices", over)
    assert [row["cost_over_compute"] for row in table] == pytest.approx([5, 2.5, 1, 1])
    assert table[-1]["output_over_input"] == pytest.approx(5)
    assert table[0]["utilisation"] == pytest.approx(0.2)


@pytest.mark.parametrize(("kv_bytes", "seconds"), [(2048, 4170), (1667, 5120)])
def test_t37_recompute_against_hold_in_the_table(kv_bytes: int, seconds: int) -> None:
    # 2.25e15 multiplies per second
    row = board(
        "kv-tiers", hold_s=300, active_params=1e11, flops_per_s=4.5e15, hbm_bytes=192e9,
        kv_bytes_per_token=kv_bytes,
    )  # fmt: skip
    assert row["break_even_hbm_s"] == pytest.approx(seconds, rel=0.02)
    assert row["cheaper"] == "hold in HBM"
    later = board(
        "kv-tiers", hold_s=2 * seconds, active_params=1e11, flops_per_s=4.5e15, hbm_bytes=192e9,
        kv_bytes_per_token=kv_bytes,
    )  # fmt: skip
    assert later["cheaper"] == "compute again"
    assert later["hold_hbm_usd_per_m"] == pytest.approx(2 * later["recompute_usd_per_m"], rel=0.02)


def test_t37_deepseek_on_h100_in_the_table() -> None:
    over: dict[str, list[Any]] = {
        "board.hold_s": [60], "board.hbm_bytes": [80e9], "board.active_params": [37e9],
    }  # fmt: skip
    (row,) = rows("kv-tiers", over, model="deepseek-v3", cluster="hgx-h100")
    assert row["break_even_hbm_s"] == pytest.approx(43, rel=0.02)


@pytest.mark.parametrize(
    ("hold_s", "lecture", "device"), [(300, "flash", "nvme"), (3600, "disk", "qlc")]
)
def test_t38_tier_of_a_hold_in_the_table(hold_s: int, lecture: str, device: str) -> None:
    assert board("kv-tiers", hold_s=hold_s, drains=LECTURE_TIERS)["suited_tier"] == lecture
    devices = "+".join(f"{name}={seconds}" for name, seconds in DEVICES.items())
    assert board("kv-tiers", hold_s=hold_s, drains=devices)["suited_tier"] == device


def test_t39_cache_prices_in_the_table() -> None:
    row = board(
        "kv-tiers", hold_s=300, list__base=5, list__write_short=6.25, list__write_long=10,
        list__hit=0.5,
    )  # fmt: skip
    assert row["write_premium_short"] == pytest.approx(0.25)
    assert row["write_premium_long"] == pytest.approx(1.0)
    assert row["premium_ratio"] == pytest.approx(4)
    assert row["hold_ratio"] == pytest.approx(12)
    assert row["one_tier"] is False
    assert row["hit_over_input"] == pytest.approx(0.1)


def test_t12_kv_bytes_of_a_price_step_in_the_table_of_prices() -> None:
    for bytes_per_param, expected in ((1, 1667), (0.5, 833), (2, 3333)):
        row = board(
            "prices", price_step=200_000, active_params=1e11, intensity=300,
            bytes_per_param=bytes_per_param,
        )  # fmt: skip
        assert row["kv_bytes_at_price_step"] == pytest.approx(expected, rel=0.01)
