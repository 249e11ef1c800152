"""What published recipes say of rows, and what follows from it: places, waiting, balance."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from costmodel.measured.predict import turned_away
from costmodel.measured.recipes import UNKNOWN, Settings, Widths, recipe_of
from costmodel.measured.rows import Group, read_measured
from costmodel.measured.runs import runs_of
from costmodel.measured.usable_hbm import sequences_hbm_bytes, sglang_fraction
from topology import load_cluster

LLAMA = {
    "id": "one", "backend": "trtllm", "model_path": "meta-llama/Llama-3.1-70B", "system": "h200_sxm",
    "precision": "fp8", "mode": "agg", "isl": "1024", "osl": "8192", "concurrency": "128", "tp_size": "1",
    "attention_dp_size": "1", "n_gpus_corrected": "1", "measured_date": "2025-10-29", "mean_isl": "921.6",
    "mean_osl": "7372.8", "silicon_tpot_ms": "30.4", "silicon_ttft_ms": "368967", "batch_size": "128",
    "moe_tp_size": "1", "moe_ep_size": "1",
}  # fmt: skip


def read(tmp_path, *changes):
    path = tmp_path / "runs.csv"
    with path.open("w", newline="") as out:
        table = csv.DictWriter(out, list(LLAMA))
        table.writeheader()
        table.writerows({**LLAMA, **change} for change in changes)
    return read_measured(path)[0]


def test_balanced_experts_are_those_of_recipes_with_a_balancer(rows):
    """GB200 with TensorRT-LLM's online balancer or SGLang's recorded placement, nothing else."""
    balanced = [row for row in rows if row.decode.settings.balanced]
    assert len(balanced) == 22
    assert {(row.system, row.engine) for row in balanced} == {
        ("gb200", "sglang"),
        ("gb200", "trtllm"),
    }
    assert all(row.decode.expert_ways >= 16 for row in balanced)
    assert sum(row.decode.settings.balanced is False for row in rows) > 300


def test_a_row_has_what_its_recipe_says_and_only_that(tmp_path):
    (known, dated) = read(tmp_path, {}, {"id": "two", "measured_date": "2024-01-01"})
    assert known.decode.settings.kv == "fp8"
    assert dated.decode.settings == UNKNOWN
    assert recipe_of(LLAMA | {"model_path": "someone/Llama"}) is None


def test_requests_wait_for_kv_that_the_engine_reserves(tmp_path):
    """TensorRT-LLM holds room for the last token: 128 users on one H200 wait for minutes, 16 do not."""
    rows = read(tmp_path, {}, {"id": "two", "concurrency": "16", "batch_size": "16"})
    many, few = runs_of(rows)[0]
    assert 40 < many.most < 60
    assert turned_away([many])[0] == pytest.approx(128 - many.most)
    assert turned_away([few])[0] == 0


def test_workers_that_are_dealt_requests_leave_places_empty(tmp_path):
    """As many requests as places: one worker takes all, of several some have too many and some too few."""
    run = runs_of(read(tmp_path, {"concurrency": "4"}))[0][0]

    def workers(count, places):
        group = replace(run.row.decode, workers=count, settings=Settings(running=places))
        return replace(
            run, row=replace(run.row, decode=group, concurrency=count * places), most=places
        )

    found = turned_away([workers(1, 1.0), workers(4, 1.0), workers(16, 1.0), workers(4, 64.0)])
    assert found[0] == 0
    assert 0.3 < found[1] < found[2] < 0.4
    assert found[3] / 64 < found[1] / 2
    assert np.isfinite(found).all()


def test_widths_are_the_recipes_where_exports_divide_the_chips_otherwise(rows):
    """TP4 workers of GB200 runs were exported as four attention ranks."""
    (row,) = [r for r in rows if r.id == "dsr1_gb200_sglang_fp8_disagg_1024x1024_c64_cfg227"]
    widths = row.decode.settings.widths
    assert widths == Widths(4, attention_dp=False, expert_ways=1)
    assert (row.decode.tp, row.decode.attention_dp, row.decode.workers) == (4, 1, 4)


def worker(tp, ranks=1, settings=UNKNOWN):
    return Group(tp, ranks, 1, 1, settings=settings)


def chip(name):
    return load_cluster(name).usable[0].chip


def test_a_fraction_is_of_what_the_engine_counts():
    """All HBM, what weights leave of what is free, what was free before weights came."""
    h100 = chip("hgx-h100")
    group, weights = worker(1, settings=Settings(memory_fraction=0.8)), 0.5 * h100.hbm_bytes
    found = {e: sequences_hbm_bytes(h100, group, e, weights) for e in ("vllm", "trtllm", "sglang")}
    shares = {engine: one / h100.hbm_bytes for engine, one in found.items()}
    assert shares == pytest.approx({"vllm": 0.3, "trtllm": 0.8 * 0.46, "sglang": 0.8 * 0.96 - 0.5})


def test_sglang_works_its_fraction_out_by_chip_and_worker():
    """By hand, in MiB: 81,920 less 512 + 12,288 + 512 + 128; wider graphs, more chips and attention ranks take more."""
    h100, h200, b200 = (chip(f"hgx-{name}") for name in ("h100", "h200", "b200"))
    l40s = h100.model_copy(update={"hbm_bytes": 46068 * 2**20})
    assert sglang_fraction(h100, worker(1)) == pytest.approx(1 - 13440 / 81920)
    assert sglang_fraction(h100, worker(8)) == pytest.approx(1 - 14848 / 81920)
    assert sglang_fraction(h200, worker(8)) == pytest.approx(1 - 14848 / 144384)
    assert sglang_fraction(b200, worker(8)) == pytest.approx(1 - 27136 / 184320)
    assert sglang_fraction(h100, worker(1, 8)) == pytest.approx(1 - (14848 + 18432) / 81920)
    assert sglang_fraction(h100, worker(1, 2)) == pytest.approx(1 - (13568 + 1536) / 81920)
    assert sglang_fraction(l40s, worker(1)) == pytest.approx(1 - 6848 / 46068)


def test_requests_wait_for_kv_that_sglang_leaves(rows):
    """Qwen3-32B takes three quarters of one H100: 16 users wait there, for up to 89 s as measured, and not on two."""
    asked = [
        row
        for row in rows
        if row.engine == "sglang" and "Qwen3-32B" in row.model and row.concurrency == 16
    ]
    waiting = {1: [], 2: []}
    for run in runs_of(asked)[0]:
        if run.row.decode.chips in waiting:
            waiting[run.row.decode.chips].append(turned_away([run])[0])
    assert min(waiting[1]) > 4
    assert max(waiting[2]) == 0


def test_unfused_experts_are_those_that_trtllm_runs_by_another_backend(rows):
    """Where its recipe names one; no other engine's rows say so."""
    told = {(row.engine, row.decode.settings.unfused_experts) for row in rows}
    assert {("trtllm", True), ("trtllm", False)} < told
    assert {found for engine, found in told if engine != "trtllm"} == {None}
    assert {row.system for row in rows if row.decode.settings.unfused_experts is False} <= {
        "b200_sxm",
        "gb200",
        "gb300",
        "b300_sxm",
    }
