"""Calibrated rates against measured rows: NCCL within 15 % median, expert-parallel within 20 %."""

import statistics

import pytest

from topology import load_chip, load_cluster
from topology.errors import InstanceError
from topology.links.fits import load_link_fits, read_link_fits
from topology.links.fitting import errors, fit_local, held_out
from topology.links.rows import expert_rows, nccl_rows

NCCL = list(nccl_rows())
EXPERTS = list(expert_rows())
CHIPS = sorted({row.chip for row in NCCL})


def errors_of(rows):
    found = []
    for row in rows:
        calibration = load_link_fits(row.chip)
        out = calibration.scale_out if row.kind == "dispatch" else None
        found += errors([row], calibration.collectives[row.kind], out)
    return found


def test_every_measured_gpu_row_is_used():
    assert len(NCCL) == 4 * (48 + 48 - 12 + 36 + 36 - 3 + 16 + 16 - 3) or len(NCCL) == 728
    assert CHIPS == ["b200", "b300", "gb200", "gb300", "h100", "h200"]


@pytest.mark.parametrize("chip", CHIPS)
def test_nccl_rows_are_predicted_within_15_percent_median(chip):
    rows = [row for row in NCCL if row.chip == chip]
    assert statistics.median(errors_of(rows)) <= 0.15
    for kind in sorted({row.kind for row in rows}):
        assert statistics.median(errors_of([r for r in rows if r.kind == kind])) <= 0.15


def test_deepep_dispatch_and_combine_rows_are_predicted_within_20_percent():
    rows = [row for row in EXPERTS if row.chip == "h800"]
    assert sorted({row.num_chips for row in rows}) == [8, 16, 32, 64, 128, 256]
    assert max(errors_of(rows)) <= 0.20


@pytest.mark.parametrize(("chip", "kind"), [("h100", "all-gather"), ("gb200", "all-reduce")])
def test_a_software_build_left_out_is_predicted_within_15_percent_median(chip, kind):
    rows = [row for row in NCCL if row.chip == chip and row.kind == kind]
    assert statistics.median(held_out(rows, lambda row: row.build)) <= 0.15


def test_files_hold_what_the_fit_finds():
    rows = [row for row in NCCL if row.chip == "h200" and row.kind == "all-reduce"]
    again, stored = fit_local(rows), read_link_fits("h200").collectives["all-reduce"]
    assert again.fraction == pytest.approx(stored.fraction, rel=1e-3)
    assert again.alpha_s == pytest.approx(stored.alpha_s, rel=1e-3, abs=0)


def test_calibrated_is_one_call_away_and_never_beats_the_bound():
    physics = load_cluster("hgx-h100@2")
    measured = physics.with_profile("calibrated")
    ids = [chip.id for chip in physics.chips]
    for kind in ("all-gather", "all-reduce", "all-to-all", "dispatch"):
        options = {"top_k": 8} if kind == "dispatch" else {}
        slow, fast = measured.rate(kind, ids, **options), physics.rate(kind, ids, **options)
        for size in (1e3, 1e6, 1e9):
            assert slow.time(size) >= fast.bound(size)
    assert physics.profile == "physics"
    assert measured.with_profile("physics").rate("all-gather", ids) == physics.rate(
        "all-gather", ids
    )
    with pytest.raises(InstanceError, match="calibrated"):
        physics.with_profile("hoped-for")


def test_unmeasured_chips_say_what_they_are_assumed_from():
    provenance = load_chip("rubin").provenance
    assert provenance["usd_per_hour"] == "assumed"
    assert provenance["hbm_bytes_per_s"] == "published"
    unmeasured = load_cluster("tpu-v5e-4x4")
    ids = [chip.id for chip in unmeasured.chips]
    assert unmeasured.with_profile("calibrated").rate("all-gather", ids) == unmeasured.rate(
        "all-gather", ids
    )
