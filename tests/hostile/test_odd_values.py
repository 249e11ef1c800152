"""Values of a wrong kind or of no measure in files and options are one message, never a traceback."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_cli import asked

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from rackfit import PlaceOptions, place, solve
from rackfit.documents.result import SCHEMA_VERSION, layout_dict
from rackfit.exporters.launch.options import convert, option_table
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer
from rackfit.studies.base import Options
from rackfit.studies.point import solve_point
from rackfit.studies.run import study
from topology.errors import InstanceError

MOE = ("--model", "qwen3-30b-a3b", "--cluster", "hgx-h100")
GOOD = {"tensor_parallel_size": 8, "enable_attention_dp": True, "moe_expert_parallel_size": 8}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"moe_config": "x"}, "moe_config: expected a mapping, got 'x'"),
        ({"moe_config": [1]}, "moe_config: expected a mapping, got [1]"),
        ({"moe_config": 3}, "moe_config: expected a mapping, got 3"),
        ({"kv_cache_config": "x"}, "kv_cache_config: expected a mapping"),
        ({"kv_cache_config": [1]}, "kv_cache_config: expected a mapping"),
        ({"kv_cache_config": 3}, "kv_cache_config: expected a mapping"),
        ({"kv_cache_config": {"dtype": [3]}}, "expected a format of the KV cache, got [3]"),
        ({"pp_partition": "x"}, "pp_partition: expected layers by stage, got 'x'"),
        ({"pp_partition": 3}, "pp_partition: expected layers by stage, got 3"),
        ({"pp_partition": [1, "x"]}, "pp_partition: expected a whole number"),
        ({"max_batch_size": "x"}, "max_batch_size: expected a whole number"),
        ({"max_batch_size": 10**12}, "expected a whole number from 1 to 1,000,000,000"),
        ({"tensor_parallel_size": 10**9}, "expected a whole number from 1 to 100,000"),
        ({"tensor_parallel_size": 0}, "tensor_parallel_size: expected a whole number from 1"),
        ({"pipeline_parallel_size": True}, "pipeline_parallel_size: expected a whole number"),
        ({"max_num_tokens": "x"}, "prefill_tokens: expected a whole number"),
        ({"moe_config": {"load_balancer": {"num_slots": 128, "initial_global_assignments": 3}}},
         "initial_global_assignments: expected a list of experts"),
        ({"moe_config": {"load_balancer": {"num_slots": 128, "initial_global_assignments": {"a": [1]}}}},
         "initial_global_assignments: expected a list of experts"),
        ({"moe_config": {"load_balancer": {"num_slots": 128, "initial_global_assignments": {0: "ab"}}}},
         "initial_global_assignments: expected a list of experts"),
        ({"moe_config": {"load_balancer": {"num_slots": 10**9}}}, "slots: expected a whole number"),
        ({"moe_config": {"load_balancer": "x" * 5000}}, "no such file"),
    ],
    ids=range(21),
)  # fmt: skip
def test_engine_files(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "engine.yaml"
    path.write_text(yaml.safe_dump({**GOOD, **fields}))
    code, said = asked("evaluate", path, "--from", "trtllm", *MOE)
    assert code == 2
    assert message in said
    assert "engine.yaml" in said or "no such file" in said


@pytest.mark.parametrize(
    ("engine", "line", "message"),
    [
        ("vllm", "vllm serve m --eplb-config 3", "--eplb-config: expected a mapping, got 3"),
        ("vllm", "vllm serve m --kv-transfer-config 3", "--kv-transfer-config: expected a mapping"),
        ("vllm", "vllm serve m --eplb-config '{\"num_redundant_experts\": \"x\"}'", "spare: expected"),
        ("vllm", "vllm serve m --max-num-seqs 999999999999", "batch: expected a whole number"),
        ("vllm", "VLLM_PP_LAYER_PARTITION=a,b vllm serve m", "expected layers by stage, got 'a,b'"),
        ("vllm", "vllm serve m --data-parallel-size 0", "expected at least 1, got 0"),
        ("vllm", "vllm serve m --eplb-config " + "[" * 5000, "commands.sh:1: --eplb-config: expected json"),
        ("vllm", "# rackfit: count=²\nvllm serve m", "count '²' is no whole number"),
        ("vllm", "# rackfit: count=100000\nvllm serve m", "needs 100000 chips, 8 are left"),
        ("sglang", "sglang.launch_server --ep-num-redundant-experts 1000000000", "spare: expected"),
        ("sglang", "sglang.launch_server --ep-num-redundant-experts 1000 --tp 8 --ep 8", "lies twice on a rank"),
        ("sglang", "sglang.launch_server --dp-size 0 --enable-dp-attention", "--dp-size: expected"),
        ("sglang", "sglang.launch_server --tp-size -3", "expected"),
        ("sglang", "sglang.launch_server --init-expert-location " + "x" * 5000, "no such file"),
        ("sglang", "SGLANG_PP_LAYER_PARTITION=1,x sglang.launch_server", "expected layers by stage"),
    ],
    ids=range(15),
)  # fmt: skip
def test_command_lines(engine: str, line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "commands.sh"
    path.write_text(line + "\n")
    code, said = asked("evaluate", path, "--from", engine, *MOE)
    assert code == 2
    assert message in said
    assert "commands.sh:" in said


def test_a_long_command_line_is_read_in_one_walk() -> None:
    words = ["--tensor-parallel-size", "8"] * 200_000
    assert option_table("vllm").read(words)[0]["--tensor-parallel-size"] == 8


def test_limits_of_an_option_are_said_as_they_are() -> None:
    for text, spec, message in (
        ("0", {"type": "int", "minimum": 1}, "expected at least 1, got 0"),
        ("9", {"type": "int", "maximum": 8}, "expected at most 8, got 9"),
        (
            "9",
            {"type": "int", "minimum": 1, "maximum": 8},
            "expected at least 1 and at most 8, got 9",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            convert(text, spec)


@pytest.mark.parametrize(
    "words",
    [
        ("solve", *MOE, "--seed", "2147483648"),
        ("solve", *MOE, "--seed", "-1"),
        ("place", "olmoe-1b-7b", "--gpus", "8", "--slots", "72", "--seed", "-1"),
        ("place", "olmoe-1b-7b", "--gpus", "1000000000", "--slots", "1000000000"),
        ("place", "olmoe-1b-7b", "--gpus", "9000", "--slots", "9000"),
        ("place", "olmoe-1b-7b", "--gpus", "8", "--slots", "72", "--workers", "9999999"),
        ("study", "grid", "--over", "slo.tpot=0.05", "--jobs", "999999", "--fresh"),
        ("study", "grid", "--over", "slo.tpot=0.05", "--jobs", "-2", "--fresh"),
        ("study", "grid", "--over", "slo.tpot=0.05", "--cache", "/dev/null/x"),
        ("explain", *MOE, "--seed", "99999999999"),
    ],
    ids=lambda words: " ".join(words[-2:]),
)
def test_options_have_limits(words: tuple[str, ...]) -> None:
    code, said = asked(*words)
    assert code == 2
    assert said.strip()
    if "--seed" in words:
        plain = re.sub(r"[\s│]", "", said)
        assert "Invalidvaluefor'--seed'" in plain  # by its option, before any work


@pytest.mark.parametrize("seed", [-1, 2**31])
def test_seeds_have_limits_in_python_too(seed: int) -> None:
    scenario = Scenario(model="llama-3.1-8b", cluster="hgx-h100", workload="chat")
    with pytest.raises(InstanceError, match=f"must be 0 to 2147483647, got {seed}"):
        solve(scenario, seed=seed)
    with pytest.raises(InstanceError, match=f"must be 0 to 2147483647, got {seed}"):
        place("olmoe-1b-7b", PlaceOptions(gpus=8, slots=72, seed=seed))


def test_a_bare_number_that_is_none_gets_no_advice(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("inf", "nan"):
        code, said = asked("solve", *MOE, "--ttft", text)
        assert code == 2
        assert "milliseconds" not in said + capsys.readouterr().err


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """A layout of eight chips as a document."""
    scenario = Scenario(model="qwen3-30b-a3b", cluster="hgx-h100", workload="chat")
    instance = resolve_instance(scenario)
    layout = build_layout(instance, [FoundServer("x", "mixed", 1, 8, 1, batch=64)]).layout
    return {
        "schema_version": SCHEMA_VERSION, "instance": instance.describe(), "layout": layout_dict(layout),
    }  # fmt: skip


def _changed(document: dict[str, Any], change: str, value: Any) -> str:
    data = json.loads(json.dumps(document))
    replica = data["layout"]["replicas"][0]
    stage = replica["stages"][0]
    if change == "bytes":
        replica["kv"][0]["bytes"] = value
    elif change == "slots":
        stage["slots_per_chip"] = value
    elif change == "layer_slots":
        stage["layer_slots"] = {"0": value}
    elif change == "sequences":
        replica["kv"][0]["sequences"] = value
    return json.dumps(data)


@pytest.mark.parametrize("command", ["export", "diff", "evaluate", "report"])
@pytest.mark.parametrize(
    ("change", "value", "message"),
    [
        ("bytes", float("inf"), "Infinity is not a number of JSON"),
        ("bytes", 1e300, ""),
        ("bytes", "1e999", "finite number"),
        ("slots", [16] * 7, "slots_per_chip lists 7 chips, the stage has 8"),
        ("slots", 10**9, "at most 100000"),
        ("layer_slots", [16] * 9, "layer_slots of 0 lists 9 chips, the stage has 8"),
        ("sequences", 10**18, "at most"),
    ],
    ids=range(7),
)
def test_layouts(
    command: str, change: str, value: Any, message: str, document: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "layout.json"
    path.write_text(_changed(document, change, value))
    words = {
        "export": ("--to", "json", "--out", tmp_path / "out.json"),
        "diff": (path,),
        "evaluate": ("--json",),
        "report": ("--out", tmp_path / "out.html"),
    }[command]
    code, said = asked(command, path, *words)
    assert code == (2 if message else code)
    assert code in (0, 1, 2)
    assert message in said


def test_a_kept_point_is_believed_only_as_it_was_written(tmp_path: Path) -> None:
    base = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"}

    def ask() -> tuple[dict[str, Any], int]:
        found = study("grid", base, over={"slo.tpot": [0.05]}, cache=tmp_path)
        return dict(found.rows[0]), found.reused

    row, _ = ask()
    assert ask() == (row, 1)
    (kept,) = tmp_path.iterdir()
    text = kept.read_text()
    cost = json.dumps(row["usd_per_m_output_tokens"])
    for wrong in (
        text.replace(cost, "0.0001"),
        '{"error": null}',
        json.dumps({**json.loads(text), "row": {"error": None}}),
        "[1]",
        "",
        "[" * 10_000,
    ):
        assert wrong != text
        kept.write_text(wrong)
        assert ask() == (row, 0)
    other = kept.with_name("0" * 64 + ".json")
    kept.rename(other)
    assert ask() == (row, 0)


def test_a_study_does_without_a_folder_for_its_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "file"
    home.write_text("")
    words = ("study", "grid", "--over", "slo.tpot=0.05", "--json")
    question = tmp_path / "q.yaml"
    question.write_text(
        yaml.safe_dump({"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"})
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    code, said = asked(words[0], words[1], question, *words[2:])
    assert code == 0
    assert "points are not kept" in said
    assert json.loads(said[said.index("{") :])["rows"][0]["error"] == ""
    code, said = asked(*words, "--cache", home / "x")
    assert code == 2
    assert "Not a directory" in said


def test_an_error_of_its_own_is_no_answer_of_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr("rackfit.studies.point.solve_row", broken)
    question = tmp_path / "q.yaml"
    asks = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"}
    question.write_text(yaml.safe_dump(asks))
    code, said = asked("study", "grid", question, "--over", "slo.tpot=0.05", "--fresh")
    assert code == 4
    assert "ZeroDivisionError: a fault of ours" in said


def test_what_no_point_expects_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    from rackfit.studies.grid import make_points

    (point,) = make_points(
        {"model": "no", "cluster": "hgx-h100", "workload": "chat"}, {"rate": [1.0]}
    )
    row, known = solve_point(point, Options(), None)
    assert (row["status"], known) == ("bad_input", False)
    with pytest.raises(InstanceError, match="must be 1 to 1024"):
        study("grid", {}, jobs=999_999)
