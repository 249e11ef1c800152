"""Results of benchmark tools become rows with the figures and the deployment that are in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import results
from results import saved
from typer.testing import CliRunner, Result

from costmodel.measured.rows import Group, MeasuredRow
from rackfit.cli.app import build_app
from rackfit.measurements.deployment import deployed_as
from rackfit.measurements.rows import Told, read_benches, read_runs, readers
from topology.errors import InstanceError


def rows(path: Path, **told: Any) -> list[MeasuredRow]:
    found, skipped = read_runs([path], Told(chip="h100", **told))
    assert not skipped
    return found


@pytest.mark.parametrize(
    ("name", "lengths", "times", "concurrency"),
    [
        ("vllm-run.json", (16, 10), (0.025, 0.1667), 4),
        ("sglang-run.jsonl", (1000, 200), (0.0095, 0.1), 2.0 * 2.0),
        ("aiperf-run.json", (1000, 200), (0.0095, 0.1), 8),
        ("genai-run.json", (1000, 200), (0.0095, 0.1), 8),
        ("stage-run.json", (1000, 200), (0.0095, 0.1), 2.0 * 1.9905),
    ],
)
def test_lengths_times_and_concurrency(
    folder: Path,
    name: str,
    lengths: tuple[int, int],
    times: tuple[float, float],
    concurrency: float,
) -> None:
    (row,) = rows(folder / name, model=results.MODEL if name == "stage-run.json" else None)
    assert (row.input_tokens, row.output_tokens) == lengths
    assert (row.tpot_s, row.ttft_s) == pytest.approx(times)
    assert row.concurrency == pytest.approx(concurrency)
    assert (row.model, row.system, row.engine) == (results.MODEL, "h100", "sglang")
    assert (row.decode.tp, row.decode.chips, row.decode.settings.running) == (2, 2, 64)
    assert row.fixed_lengths
    assert dict(row.percentiles)["tpot_p99_s"] > row.tpot_s


def test_newer_configurations_are_read(folder: Path) -> None:
    phases = [
        {"name": "warmup", "concurrency": 1},
        {"name": "profiling", "type": "concurrency", "concurrency": 8},
    ]
    newer = results.aiperf(input_config={"models": [{"name": results.MODEL}], "phases": phases})
    (row,) = rows(saved(folder, newer))
    assert (row.model, row.concurrency) == (results.MODEL, 8)
    phases[1] = {"name": "profiling", "type": "poisson", "rate": 4.0, "concurrency": 64}
    (row,) = rows(
        saved(folder, newer | {"input_config": {"model": results.MODEL, "phases": phases}}),
        model="x",
    )
    assert row.concurrency == pytest.approx(4.0 * 2.0)
    guide = results.guidellm()
    del guide["args"]
    guide["config"] = {"spec": {"backend": {"kind": "openai_http", "model": results.MODEL}}}
    assert {row.model for row in rows(saved(folder, guide))} == {results.MODEL}


def test_time_per_chunk_is_not_time_per_token(folder: Path) -> None:
    halved = results.inference_perf()
    latency = halved["successes"]["latency"]
    latency["time_per_output_token"] = {
        key: value / 2 for key, value in latency["time_per_output_token"].items()
    }
    (row,) = rows(saved(folder, halved), model=results.MODEL)
    assert row.tpot_s == pytest.approx(0.0095)
    assert {name for name, _ in row.percentiles if name.startswith("tpot")} == set()


def test_every_benchmark_of_guidellm_is_a_row_in_both_of_its_forms(folder: Path) -> None:
    for holder in ("config", "args"):
        found = rows(saved(folder, results.guidellm(holder)))
        assert [row.concurrency for row in found] == [4.0, 2.0 * 2.0]  # streams; rate times latency
        assert {row.tpot_s for row in found} == {
            0.0095
        }  # not time_per_output_token, which counts the first


def test_rows_of_inferencex_bring_their_deployment(folder: Path) -> None:
    (row,) = read_runs([folder / "agg-run.json"])[0]
    assert (row.system, row.engine, row.concurrency) == ("h200", "sglang", 64)
    assert row.decode == Group(1, 8, 1, 1, 8)
    apart = results.inferencex(disagg=True, framework="dynamo-trt", prefill_tp=4, prefill_ep=4, prefill_num_workers=2,
                               prefill_dp_attention="true", decode_tp=8, decode_ep=8, decode_num_workers=1,
                               decode_dp_attention="false", hw="gb200-nv")  # fmt: skip
    (row,) = read_runs([saved(folder, apart)])[0]
    assert (row.engine, row.system) == ("trtllm", "gb200")
    assert (row.prefill, row.decode) == (Group(1, 4, 1, 2, 4), Group(8, 1, 1, 1, 8))


def test_a_table_means_what_the_engine_means(folder: Path) -> None:
    found, skipped = read_runs([folder / "own-runs.csv"])
    assert [row.id for row in found] == ["one", "moe"]
    assert (found[0].decode.tp, dict(found[0].percentiles)) == (2, {"tpot_p99_s": 0.0115})
    # SGLang counts its attention ranks in --tp-size: sixteen GPUs, not 256
    assert (found[1].decode.tp, found[1].decode.attention_dp, found[1].decode.chips) == (1, 16, 16)
    reasons = {row.id: row.reason for row in skipped}
    assert "example row" in reasons["example"]
    assert "gpus: says 16, the sizes make 1" in reasons["wrong"]


def test_engines_count_their_own_way() -> None:
    moe = (
        "--tensor-parallel-size 2 --data-parallel-size 8 --enable-expert-parallel --max-num-seqs 32"
    )
    vllm = deployed_as(f"vllm serve m {moe}", "vllm", "x").decode
    assert (vllm.tp, vllm.attention_dp, vllm.chips, vllm.expert_ways) == (2, 8, 16, 16)
    assert vllm.settings.running == 32 * 8
    sglang = deployed_as("--tp-size 16 --dp-size 8 --enable-dp-attention", "sglang", "x").decode
    assert (sglang.tp, sglang.attention_dp, sglang.chips) == (2, 8, 16)
    copies = deployed_as("--tp-size 2 --dp-size 4", "sglang", "x").decode
    assert (copies.tp, copies.attention_dp, copies.workers) == (2, 1, 4)


def test_the_warm_up_is_cut(folder: Path) -> None:
    (row,) = rows(folder / "vllm-run.json", warm_up_s=50.0)
    assert (row.tpot_s, row.ttft_s) == pytest.approx((0.02, 0.1))
    assert "p99" not in str(row.percentiles)  # those of the whole run
    assert "every request started" in refused(folder / "vllm-run.json", warm_up_s=500.0)
    assert "--save-detailed" in refused(
        saved(folder, {k: v for k, v in results.vllm().items() if k != "itls"}), warm_up_s=1.0
    )
    assert "cut the warm-up in the tool" in refused(folder / "aiperf-run.json", warm_up_s=1.0)


def refused(path: Path, **told: Any) -> str:
    with pytest.raises(InstanceError) as stop:
        read_runs([path], Told(**{"chip": "h100", **told}))
    return str(stop.value)


def test_runs_that_cannot_be_compared_are_left_out_with_the_reason(folder: Path) -> None:
    for data, reason in (
        (results.vllm(spec_decode_acceptance_length=2.4), "ran with drafts, 2.4 tokens per pass"),
        (results.sglang(accept_length=1.9), "ran with drafts"),
        (results.inferencex(spec_decoding="mtp"), "ran with drafts (mtp)"),
        (results.inferencex(dcp_size=8), "divides contexts over GPUs (dcp_size)"),
        (results.vllm(failed=6), "6 of 18 requests failed"),
        (
            results.aiperf(error_request_count={"unit": "requests", "avg": 60.0}),
            "60 of 124 requests failed",
        ),
    ):
        found, skipped = read_runs([saved(folder, data)], Told(chip="h100"))
        assert not found
        assert reason in skipped[0].reason


def test_what_is_missing_is_asked_for(tmp_path: Path) -> None:
    path = saved(tmp_path, results.inference_perf())
    said = refused(path, chip=None)
    assert "give --launch FILE" in said
    assert "give --model" in said
    assert "give --chip" in said


@pytest.mark.parametrize("request_rate", [float("inf"), "inf"])
def test_infinity_of_python_is_no_rate(folder: Path, request_rate: object) -> None:
    if request_rate == "inf":
        (row,) = rows(saved(folder, results.vllm(request_rate=request_rate)))
        assert row.concurrency == 4
    else:
        closed = results.sglang(request_rate=request_rate, max_concurrency=16)
        (row,) = rows(saved(folder, closed, "r.jsonl"))
        assert row.concurrency == 16


def test_folders_and_lines_add_up(folder: Path) -> None:
    (folder / "sglang-run.jsonl").write_text(
        "".join(json.dumps(results.sglang()) + "\n" for _ in range(3))
    )
    found, _ = read_runs([folder], Told(chip="h100", model=results.MODEL))
    assert len(found) == 1 + 3 + 1 + 1 + 2 + 1 + 1 + 2
    (folder / "empty").mkdir()
    with pytest.raises(InstanceError, match=r"holds no \.json"):
        read_runs([folder / "empty"])


def test_runs_of_a_server_that_drafts_are_left_out(folder: Path) -> None:
    """Its tokens come quicker than the model's passes, whether the tool knows it or not."""
    launch = (folder / "launch.sh").read_text().strip()
    (folder / "launch.sh").write_text(
        f"{launch} --speculative-algorithm EAGLE3 --speculative-num-steps 2\n"
    )
    found, skipped = read_runs([folder / "vllm-run.json"], Told(chip="h100"))
    assert found == []
    assert [one.reason for one in skipped] == ["ran with drafts (eagle3, 2 tokens per pass)"]


def test_what_else_a_tool_writes_into_its_folder_is_left_out(tmp_path: Path) -> None:
    """inference-perf: a check of its reports, and all stages together beside the stages."""
    for name in ("stage_0_lifecycle_metrics.json", "summary_lifecycle_metrics.json"):
        saved(tmp_path, results.inference_perf(), name)
    (tmp_path / "validation.json").write_text('{"global": {"warnings": [], "errors": []}}')
    (tmp_path / "inputs.jsonl").write_text('{"session": 1}\n{"session": 2}\n')
    (tmp_path / "export.csv").write_text("Metric,avg\nRequest Latency (ms),3\n")
    (tmp_path / "launch.sh").write_text(results.LAUNCH)
    told = Told(chip="h100", model=results.MODEL)
    (row,), skipped = read_runs([tmp_path], told)
    assert row.id.endswith("stage_0_lifecycle_metrics.json")
    assert sorted(Path(one.id.split(":")[0]).name for one in skipped) == [
        "export.csv", "inputs.jsonl", "validation.json",
    ]  # fmt: skip
    (tmp_path / "stage_0_lifecycle_metrics.json").write_text('{"load_summary": {')
    with pytest.raises(InstanceError, match="stage_0"):
        read_runs([tmp_path], told)
    for name in ("stage_0", "summary"):
        (tmp_path / f"{name}_lifecycle_metrics.json").unlink()
    with pytest.raises(InstanceError, match=r"no result of a tool|columns missing"):
        read_runs([tmp_path], told)


@pytest.mark.parametrize("name", ["vllm-run.json", "sglang-run.jsonl", "aiperf-run.json", "guidellm-run.json",
                                  "stage-run.json", "agg-run.json"])  # fmt: skip
def test_a_file_that_was_cut_off_or_is_foreign_gets_one_error(folder: Path, name: str) -> None:
    text = (folder / name).read_text()
    for part in range(1, 10):
        (folder / name).write_text(text[: len(text) * part // 10])
        said = refused(folder / name)
        assert name in said
        assert "\n" not in said
    (folder / name).write_text('{"a": 1}')
    assert "no result of a tool that is known" in refused(folder / name)


def test_keys_that_are_gone_are_named(folder: Path) -> None:
    for data, gone in ((results.vllm(), "mean_tpot_ms"), (results.vllm(), "total_input_tokens"), (results.sglang(), "mean_tpot_ms"),
                       (results.inferencex(), "tp"), (results.inference_perf(), "successes")):  # fmt: skip
        del data[gone]
        said = refused(saved(folder, data))
        assert gone in said or "no result of a tool" in said


def test_each_reader_reads_its_own_results_only(folder: Path) -> None:
    for path in folder.glob("*-run.json*"):
        text = path.read_text()
        entry = json.loads(text)
        entry = entry[0] if isinstance(entry, list) else entry
        assert sum(reader.recognises(entry) for reader in readers().values()) == 1, path
        assert read_benches(path)


def run(*words: object) -> Result:
    return CliRunner().invoke(build_app(), [str(word) for word in words])


def test_validate_reads_results(folder: Path) -> None:
    done = run(
        "validate", folder / "sglang-run.jsonl", folder / "own-runs.csv", "--chip", "h100", "--json"
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["tpot"]["n"] == 3
    assert told["rows"][0]["measured_percentiles"]["ttft_p99_s"] == 0.3


def test_the_template_is_read_and_its_example_left_out(tmp_path: Path) -> None:
    out = tmp_path / "mine.csv"
    assert run("new", "--measurements", out).exit_code == 0
    assert "exists already" in str(run("new", "--measurements", out).exception)
    found, skipped = read_runs([out])
    assert not found
    assert [row.reason for row in skipped] == ["the example row of the template"]


def test_a_folder_that_is_no_folder_of_results_is_not_walked_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackfit.measurements.files.MAX_ENTRIES", 20)
    for number in range(12):
        (tmp_path / f"{number}" / "inside").mkdir(parents=True)
    with pytest.raises(InstanceError, match="holds more than 20 files and folders"):
        read_runs([tmp_path])
