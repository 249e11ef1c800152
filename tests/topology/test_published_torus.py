"""Worked problems on TPU tori: scaling book SB08-SB13, SB21, SB27; Pope et al. ES01-ES05."""

import pytest

from tests.topology import sharded_matmul as ff
from topology import load_cluster

US = 1e-6


def overlapped(rate, num_bytes):
    """Seconds if hops overlap with bytes: the larger of the two (scaling-book convention)."""
    return max(rate.latency_s, rate.s_per_byte * num_bytes)


def row(cluster, *positions):
    return [cluster.chips[position].id for position in positions]


def test_sb08_corner_to_corner_on_a_4x4_slice():
    cluster = load_cluster("tpu-v5e-4x4")
    rate = cluster.rate("send", row(cluster, 0, 15))
    assert rate.latency_s == pytest.approx(6 * US, abs=0)
    assert rate.time(8 * 128 * 8192 * 2) == pytest.approx(192.4 * US, rel=0.01, abs=0)


def test_sb09_gathering_an_array_on_one_chip():
    cluster = load_cluster("tpu-v5e-4x4")
    shard = 16e9 / 16
    arriving = cluster.transfers((chip.id, "r0g0", shard) for chip in cluster.chips[1:])
    assert arriving.time_s == pytest.approx(167e-3, rel=0.01)
    chip = cluster.chips[0].chip
    assert 16e9 / chip.hbm_bytes_per_s == pytest.approx(19e-3, rel=0.03)
    assert pytest.approx(66e-3, rel=0.02) == 16e9 / (16 * 1.5e10)
    assert 2 * 8 * 128e3**2 / chip.peak_flops_per_s("bf16") == pytest.approx(1.3e-3, rel=0.03)


def test_t43_sb10_all_gather_with_and_without_wraparound():
    size = 2048 * 8192 * 2
    line, ring = load_cluster("tpu-v5e-4x4"), load_cluster("tpu-v4-4x4x4")
    without = line.rate("all-gather", row(line, 0, 1, 2, 3))
    around = ring.rate("all-gather", row(ring, 0, 1, 2, 3))
    assert overlapped(without, size) == pytest.approx(559 * US, rel=0.03, abs=0)
    assert overlapped(around, size) == pytest.approx(373 * US, rel=0.03, abs=0)
    assert without.time(size) <= 680 * US  # measured


def test_t43_sb11_small_all_gather_is_bound_by_hops():
    cluster = load_cluster("tpu-v5e-4x4")
    rate = cluster.rate("all-gather", row(cluster, 0, 1, 2, 3))
    size = 256 * 256 * 2
    assert overlapped(rate, size) == pytest.approx(3 * US, rel=0.03, abs=0)
    assert rate.time(size) <= 8 * US  # measured


def test_t43_sb12_all_gather_and_all_reduce_on_a_cube():
    cluster = load_cluster("tpu-v4-4x4x4")
    whole = 1024 * 4096 * 2
    z_ring, plane = row(cluster, 0, 1, 2, 3), row(cluster, *range(16))
    along_x = overlapped(cluster.rate("all-gather", row(cluster, 0, 16, 32, 48)), whole / 4)
    assert along_x == pytest.approx(23.3 * US, rel=0.03, abs=0)
    along_xy = overlapped(cluster.rate("all-gather", plane), whole)
    assert along_xy == pytest.approx(46.6 * US, rel=0.03, abs=0)
    reduced = overlapped(cluster.rate("all-reduce", z_ring), whole / 16)
    assert reduced == pytest.approx(11.65 * US, rel=0.03, abs=0)


def test_t43_sb13_tiny_all_gather_on_a_ring_takes_two_hops():
    cluster = load_cluster("tpu-v4-4x4x4")
    rate = cluster.rate("all-gather", row(cluster, 0, 1, 2, 3))
    assert overlapped(rate, 256) == pytest.approx(2 * US, rel=0.03, abs=0)


def test_t45_sb21_one_matmul_of_70b_on_4x8_waits_for_hbm():
    cluster = load_cluster("tpu-v5e-4x8")
    chip, ids = cluster.chips[0].chip, [chip.id for chip in cluster.chips]
    tokens, d_model, d_ff = 64, 8192, 28672
    times = {
        "ici": cluster.rate("all-gather", ids).s_per_byte * tokens * d_model * 2,
        "hbm": d_model * d_ff * 2 / 32 / chip.hbm_bytes_per_s,
        "math": 2 * tokens * d_model * d_ff / 32 / chip.peak_flops_per_s("bf16"),
    }
    assert times["ici"] == pytest.approx(11.65 * US, rel=0.01, abs=0)
    assert times["hbm"] == pytest.approx(18.1 * US, rel=0.015, abs=0)
    assert times["math"] == pytest.approx(4.77 * US, rel=0.01, abs=0)
    assert max(times, key=times.get) == "hbm"


def test_es01_one_dimensional_layout_does_not_gain_from_chips():
    tokens, d_model = 512, 18432
    times = []
    for name in ("tpu-v4-4x4x4", "tpu-v4-4x4x8", "tpu-v4-8x8x8"):
        cluster = load_cluster(name)
        ids = [chip.id for chip in cluster.chips]
        rate = cluster.rate("all-reduce", ids)  # all-gather and reduce-scatter
        times.append(rate.s_per_byte * tokens * d_model * 2)
    moved = ff.weight_stationary_1d(tokens, d_model) * 2 / 270e9
    assert times == pytest.approx([moved] * 3, rel=0.04, abs=0)


def test_es02_two_dimensional_layout_falls_with_the_root_of_chips():
    tokens, d_model, d_ff = 64, 18432, 4 * 18432
    for chips in (16, 64, 256):
        x, yz = ff.best_split(chips, d_model, d_ff)
        assert (x, yz) == pytest.approx((0.5 * chips**0.5, 2 * chips**0.5))
        moved = ff.weight_stationary_2d(tokens, d_model, d_ff, x, yz)
        assert moved == pytest.approx(8 * tokens * d_model / chips**0.5)


def test_t47_es03_sb27_where_two_dimensions_begin_to_win():
    tokens, d_model, d_ff = 64, 8192, 4 * 8192

    def two(chips):
        return ff.weight_stationary_2d(tokens, d_model, d_ff, *ff.best_split(chips, d_model, d_ff))

    one = ff.weight_stationary_1d(tokens, d_model)
    assert two(16) == pytest.approx(one)
    assert two(15) > one > two(17)

    # book accounting: gathers of two axis groups at W each, against 4BD on three axes
    def book(chips):
        x = (chips / 8) ** 0.5
        return 2 * tokens * d_model / x + 4 * tokens * d_ff / (chips / x)

    three_axes = 4 * tokens * d_model / 3
    assert book(72) == pytest.approx(three_axes)
    assert book(71) > three_axes > book(73)


def test_es04_gathering_weights_over_the_best_number_of_chips():
    tokens, d_model, d_ff, chips = 2.0**18, 16384, 65536, 4096
    best = ff.best_gather(tokens, d_ff, chips)
    moved = ff.weight_gathered(tokens, d_model, d_ff, chips, best)
    assert moved == pytest.approx(4 * d_model * (tokens * d_ff / chips) ** 0.5)
    for other in (best / 2, best * 2):
        assert ff.weight_gathered(tokens, d_model, d_ff, chips, other) > moved


@pytest.mark.parametrize(
    ("tokens", "layout"),
    [
        (16_000, "2D"), (16_800, "X"), (65_000, "X"), (66_000, "XY"), (700_000, "XY"),
        (850_000, "XYZ"),
    ],
)  # fmt: skip
def test_t48_es05_layouts_change_as_tokens_grow(tokens, layout):
    assert ff.cheapest_layout(tokens, 16384, 65536, (4, 4, 4)) == layout
