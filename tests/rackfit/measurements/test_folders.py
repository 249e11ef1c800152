"""What lies beside results in a folder, and files that are not what their name says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import results
from results import saved

from rackfit.measurements.rows import Told, read_runs
from topology.errors import InstanceError

TOLD = Told(chip="h100", model=results.MODEL)


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """A folder with a launch command."""
    (tmp_path / "launch.sh").write_text(results.LAUNCH)
    return tmp_path


def left_out(folder: Path, rows: int = 1) -> dict[str, str]:
    """Files of a folder that are left out, with the reason."""
    found, skipped = read_runs([folder], TOLD)
    assert len(found) == rows
    return {Path(one.id.split(":")[0]).name: one.reason for one in skipped}


def test_figures_that_inference_perf_collects_from_the_server_are_left_out(alone: Path) -> None:
    saved(alone, results.inference_perf(), "stage_0_lifecycle_metrics.json")
    server = {
        "load_summary": {},
        "failures": {},
        "successes": {"count": 9, "rate": 1.0, "prompt_len": {"mean": 9}},
    }
    saved(alone, server, "stage_0_prometheus_metrics.json")
    assert list(left_out(alone)) == ["stage_0_prometheus_metrics.json"]


@pytest.mark.parametrize("entry", [results.vllm(), results.sglang()])
def test_appended_runs_are_read_whatever_the_file_is_called(
    alone: Path, entry: dict[str, object]
) -> None:
    """``--append-result`` of vLLM writes an object per line into a file ``.json``."""
    (alone / "r.json").write_text("\n".join([json.dumps(entry)] * 2))
    rows, _ = read_runs([alone / "r.json"], TOLD)
    assert [row.id for row in rows] == [f"{alone}/r.json:1", f"{alone}/r.json:2"]
    (alone / "r.json").write_text(json.dumps(entry) + '\n{"cut')
    with pytest.raises(InstanceError, match=r"r.json:2:1:2: not JSON"):
        read_runs([alone / "r.json"], TOLD)


def test_a_run_that_is_named_twice_counts_once(alone: Path) -> None:
    """As ``runs runs/*.json`` names them: three copies of one run are no three runs that agree."""
    run, other = saved(alone, results.vllm()), saved(alone, results.vllm(), "other.json")
    again = alone / ".." / alone.name / run.name
    rows, _ = read_runs([run, alone, again], TOLD)
    assert [row.id for row in rows] == [str(run), str(other)]


def test_a_log_of_lines_does_not_stop_a_folder(alone: Path) -> None:
    saved(alone, results.vllm())
    (alone / "log.json").write_text('{"x": 1}\n{"x": 2}\n')
    assert "no result of a tool" in left_out(alone)["log.json"]


def test_the_sum_of_a_sweep_is_not_counted_twice(alone: Path) -> None:
    for name in ("run=0.json", "run=1.json"):
        saved(alone, results.vllm(), name)
    saved(alone, [results.vllm(), results.vllm()], "summary.json")
    assert left_out(alone, rows=2) == {}
    for name in ("run=0.json", "run=1.json"):
        (alone / name).unlink()
    assert left_out(alone, rows=2) == {}  # alone it is all there is


def test_files_that_are_too_large_or_no_text_do_not_stop_a_folder(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(alone, results.vllm())
    (alone / "gpu.csv").write_bytes(b"a;b\n\xff\xfe\n")
    (alone / "old.json").write_bytes(b'{"a": "\xff"}')
    with (alone / "profile_export.jsonl").open("w") as file:
        file.truncate(129 * 2**20)  # what single requests of a long run take
    with (alone / "long.csv").open("w") as file:
        file.write("x" * 200_000)
    found = left_out(alone)
    assert "not UTF-8" in found["gpu.csv"]
    assert "not UTF-8" in found["old.json"]
    assert "at most" in found["profile_export.jsonl"]
    assert "not CSV: field larger" in found["long.csv"]
    for name in found:
        with pytest.raises(InstanceError, match=name):  # named files must hold runs
            read_runs([alone / name], TOLD)


@pytest.mark.parametrize(("name", "text"), [("a.json", "[]"), ("a.jsonl", "\n")])
def test_an_empty_file_is_named(alone: Path, name: str, text: str) -> None:
    (alone / name).write_text(text)
    with pytest.raises(InstanceError, match=rf"{name}: holds no run$"):
        read_runs([alone / name], TOLD)
    saved(alone, results.vllm())
    assert left_out(alone) == {name: "holds no run"}


def test_an_engine_that_contradicts_its_launch_command_is_refused(alone: Path) -> None:
    path = saved(alone, results.sglang(), "r.jsonl")
    (alone / "launch.sh").write_text(f"vllm serve {results.MODEL} --tensor-parallel-size 2\n")
    said = r"sglang.bench_serving sent its requests to sglang, but the launch command is of vllm"
    with pytest.raises(InstanceError, match=said):
        read_runs([path], TOLD)
    saved(alone, results.sglang(backend="sglang-oai"), "r.jsonl")  # any server speaks that
    (row,), _ = read_runs([path], TOLD)
    assert row.engine == "vllm"
