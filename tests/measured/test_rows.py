"""Reading measured files: good rows, bad rows, bad files."""

import csv
import json
import subprocess
import sys

import pytest

from costmodel.measured.fitting.calibration import shipped_rows
from costmodel.measured.rows import FLAGGED, Group, read_measured
from costmodel.measured.runs import runs_of
from costmodel.measured.scores import validate_rows
from costmodel.measured.systems import model_name, served, system_names
from costmodel.question.profile import load_profile
from topology.errors import InstanceError

GOOD = {
    "id": "good",
    "backend": "vllm",
    "model_path": "meta-llama/Llama-3.1-8B-Instruct",
    "system": "h100_sxm",
    "precision": "bf16",
    "mode": "agg",
    "isl": "1024",
    "osl": "128",
    "tp_size": "2",
    "concurrency": "8",
    "silicon_ttft_ms": "60",
    "silicon_tpot_ms": "6.5",
}
BAD = {
    "underscore": {"silicon_tpot_ms": "1_0"},
    "zero": {"silicon_tpot_ms": "0"},
    "text": {"isl": "a thousand"},
    "endless": {"silicon_tpot_ms": "inf"},
    "negative": {"concurrency": "-4"},
    "unnamed": {"model_path": ""},
    "unknown model": {"model_path": "acme/thinker-9000"},
    "unknown system": {"system": "abacus"},
    "flagged": {"suspect_unlabelled_mtp": "True"},
    "too big": {"model_path": "deepseek-ai/DeepSeek-V3", "tp_size": "1"},
    "half a GPU": {"tp_size": "1.5"},
}


def write(path, rows):
    names = sorted({name for row in rows for name in row})
    with path.open("w", newline="") as stream:
        table = csv.DictWriter(stream, names)
        table.writeheader()
        table.writerows(rows)
    return path


def test_shipped_rows_are_read_and_almost_all_can_be_predicted():
    rows, skipped = shipped_rows()
    assert len(rows) + len(skipped) == 2388
    flagged = [one for one in skipped if one.reason.startswith("flagged")]
    assert len(flagged) == 479
    assert len(rows) / (2388 - len(flagged)) >= 0.97
    assert {served(row).chip for row in rows} == {"h100", "h200", "b200", "gb200"}


@pytest.mark.slow
def test_97_percent_of_unflagged_rows_are_predicted():
    rows, skipped = shipped_rows()
    flagged = [one for one in skipped if one.reason == FLAGGED]
    found = validate_rows(rows, skipped, load_profile("calibrated"))
    assert len(found.runs) / (2388 - len(flagged)) >= 0.97
    assert all(one.reason for one in found.unsupported)


@pytest.mark.parametrize(
    ("cells", "group"),
    [
        # the sheet gives one rank's batch and everybody's concurrency
        ({"tp_size": "4", "moe_ep_size": "4", "batch_size": "2"}, Group(1, 4, 1, 1, 4)),
        ({"tp_size": "8", "moe_tp_size": "8", "batch_size": "1"}, Group(1, 8, 1, 1, 1)),
        # a dense model's batch is one worker's
        ({"tp_size": "2", "batch_size": "4"}, Group(2, 1, 1, 2, 1)),
        # experts lie on all chips, of which attention shards over one
        ({"tp_size": "1", "moe_tp_size": "4", "batch_size": "8"}, Group(1, 4, 1, 1, 1)),
        # an export that multiplies ranks, and its corrected count
        (
            {"tp_size": "8", "attention_dp_size": "1", "moe_tp_size": "8", "moe_ep_size": "8",
             "n_gpus_corrected": "8"},
            Group(8, 1, 1, 1, 8),
        ),
    ],
)  # fmt: skip
def test_groups_are_inferred_from_what_the_exports_give(tmp_path, cells, group):
    rows, _ = read_measured(write(tmp_path / "one.csv", [GOOD | cells]))
    assert rows[0].decode == group


def test_whole_experts_are_loaded_with_the_published_skew(tmp_path):
    moe = GOOD | {"model_path": "openai/gpt-oss-120b", "precision": "fp4", "tp_size": "4"}
    made = [moe | {"id": "cut", "moe_tp_size": "4"}, moe | {"id": "whole", "moe_ep_size": "4"}]
    cut, whole = runs_of(read_measured(write(tmp_path / "two.csv", made))[0])[0]
    assert (cut.instance.expert_loads == 1 / 128).all()
    assert whole.instance.expert_loads.max() > 3 / 128


def test_checkpoints_that_nvidia_quantised_keep_their_kv_in_fp8(tmp_path):
    name = "nvidia/Llama-3.1-8B-Instruct-FP8"
    made = [GOOD | {"id": name, "model_path": name, "precision": "fp8"},
            GOOD | {"id": "other", "precision": "fp8"}]  # fmt: skip
    theirs, other = read_measured(write(tmp_path / "two.csv", made))[0]
    assert served(theirs).kv_dtype == "fp8"
    assert served(other).kv_dtype is None


def test_bad_rows_are_named_and_the_rest_is_kept(tmp_path):
    made = [GOOD, *({**GOOD, **wrong, "id": name} for name, wrong in BAD.items())]
    rows, skipped = read_measured(write(tmp_path / "mixed.csv", made))
    runs, unpriced = runs_of(rows)
    assert [run.row.id for run in runs] == ["good"]
    reasons = {one.id: one.reason for one in (*skipped, *unpriced)}
    assert set(reasons) == set(BAD)
    assert "not a number" in reasons["text"]
    assert "acme/thinker-9000" in reasons["unknown model"]
    assert "HBM" in reasons["too big"]


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "id;isl\n"])
def test_files_that_are_no_such_table_are_refused(tmp_path, text):
    path = tmp_path / "wrong.csv"
    path.write_text(text)
    with pytest.raises(InstanceError, match="columns missing: backend"):
        read_measured(path)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "torn.csv.gz").write_bytes(b"\x1f\x8b\x08\x00")
    for name in ("binary.csv", "torn.csv.gz", "absent.csv"):
        with pytest.raises(InstanceError):
            read_measured(tmp_path / name)


def validate(path, *options):
    return subprocess.run(
        [sys.executable, "-m", "rackfit", "validate", str(path), *options],
        capture_output=True,
        text=True,
        check=False,
    )


def test_validate_scores_what_is_left_and_names_the_rest(tmp_path):
    made = [GOOD, *({**GOOD, **wrong, "id": name} for name, wrong in BAD.items())]
    plot = tmp_path / "plot.svg"
    done = validate(write(tmp_path / "mixed.csv", made), "--json", "--plot", str(plot))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["id"] for row in found["rows"]] == ["good"]
    assert found["rows"][0]["predicted_tpot_ms"] > 0
    assert found["tpot"]["n"] == found["ttft"]["n"] == 1
    assert {one["id"] for one in found["unsupported"]} == set(BAD)
    assert plot.read_text().startswith("<svg")


def test_validate_exits_2_where_nothing_is_left(tmp_path):
    path = write(tmp_path / "none.csv", [{**GOOD, **BAD["zero"]}])
    done = validate(path)
    assert done.returncode == 2
    assert "silicon_tpot_ms: must be above 0" in done.stderr
    assert "Traceback" not in done.stderr


def test_names_of_checkpoints_and_systems():
    assert model_name("nvidia/DeepSeek-R1-0528-FP4-v2") == "deepseek-r1"
    assert model_name("meta-llama/Llama-3.3-70B-Instruct") == "llama-3.1-70b"
    assert system_names("gb200_nvl72") == ("gb200", "gb200-nvl72")
    assert system_names("mi355x") == ("mi355x", "mi355x")
    assert system_names("rtx_pro_6000_server") == ("rtxpro6000", "rtxpro6000")
    with pytest.raises(InstanceError, match="h100_pcie"):  # slower memory, no NVLink: another chip
        system_names("h100_pcie")


def test_chips_that_do_not_divide_the_heads_are_attention_ranks(rows):
    """128 heads on 24 chips: exports call such workers TP24, engines cannot run them so."""
    asked = [row for row in rows if row.decode.tp == 24]
    assert asked
    for run in runs_of(asked)[0]:
        assert run.row.decode.tp == 1
        assert run.row.decode.attention_dp == run.row.decode.expert_ways == 24
    (whole,) = runs_of([next(row for row in rows if row.decode.tp == 8)])[0]
    assert whole.row.decode.tp == 8


@pytest.mark.parametrize(("mode", "by_block"), [("fp8_block", True), ("fp8", False), ("", False)])
def test_weights_that_a_row_says_have_scales_by_block_have_their_inputs_quantised(
    tmp_path, mode, by_block
):
    """Llama has none of its own in 8 bits: they are what the engine made of it."""
    row = {**GOOD, "precision": "fp8", "gemm_quant_mode": mode}
    (found,) = read_measured(write(tmp_path / "one.csv", [row]))[0]
    assert found.block_scales is by_block
    (run,) = runs_of([found])[0]
    counts = [kind.quantised for kind in run.instance.operations.kinds]
    assert counts == ([(("fp8", 4),)] if by_block else [()])


def test_a_checkpoint_with_its_own_scales_by_block_needs_nobody_to_say_so(rows):
    row = next(one for one in rows if "DeepSeek-R1" in one.model and one.precision == "fp8")
    (run,) = runs_of([row])[0]
    assert all(dict(kind.quantised).get("fp8", 0) >= 4 for kind in run.instance.operations.kinds)


def test_the_kv_cache_is_what_a_row_says(tmp_path):
    rows = [{**GOOD, "id": kv or "none", "kv_dtype": kv} for kv in ("fp8", "bf16", "", "fp7")]
    found, skipped = read_measured(write(tmp_path / "kv.csv", rows))
    runs, _ = runs_of(found)
    assert {run.row.id: run.instance.model.kv_dtype for run in runs} == {
        "fp8": "fp8", "bf16": "bf16", "none": "bf16",
    }  # fmt: skip
    assert [(one.id, one.reason.split(";")[0]) for one in skipped] == [
        ("fp7", "kv_dtype: 'fp7' is unknown")
    ]
