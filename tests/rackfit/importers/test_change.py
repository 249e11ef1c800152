"""``evaluate --from .. --compare``: the words, applied, give the throughput that they promise."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from costmodel.evaluate import evaluate
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.cli.app import build_app
from rackfit.documents.result import read_result
from rackfit.importers.change import placed_anew
from rackfit.importers.deployment import import_deployment
from rackfit.importers.running import evaluate_running
from topology.errors import InstanceError

LAUNCH = "python -m sglang.launch_server --model-path openai/gpt-oss-120b --tp-size 8 --ep-size 8"
QUESTION = ("--model", "gpt-oss-120b", "--cluster", "hgx-h100", "--input-tokens", "1000",
            "--output-tokens", "500")  # fmt: skip


def rackfit(*args: object) -> Result:
    result = CliRunner().invoke(build_app(), [str(arg) for arg in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("change")
    (path / "run.sh").write_text(f"{LAUNCH} --max-running-requests 256\n")
    return path


def scenario(engine: str | None = None) -> Scenario:
    return Scenario(
        model="gpt-oss-120b", cluster="hgx-h100", engine=engine,
        workload=Workload(input_tokens=1000, output_tokens=500),
    )  # fmt: skip


def test_the_words_applied_give_the_throughput_they_promise(folder: Path) -> None:
    before = evaluate_running(scenario("sglang"), "sglang", folder / "run.sh").evaluation
    said = rackfit("evaluate", folder / "run.sh", "--from", "sglang", *QUESTION, "--engine", "sglang",
                   "--compare", "--into", folder / "change").stdout  # fmt: skip
    begun = {
        "placed": "keep the servers (",
        "filled": "keep the servers and let them run as many sequences as targets and HBM allow (--max-running-requests: ",
        "best": "the best layout altogether",
    }
    lines = {
        name: line
        for name, words in begun.items()
        for line in said.splitlines()
        if line.startswith(words)
    }
    promised = {
        name: float(re.search(r"([+-][\d.]+)% output tokens/s", lines[first])[1]) / 100  # type: ignore[index]
        for name, first in (("keep", "placed"), ("fuller", "filled"), ("best", "best"))
    }
    commands = [line for line in said.splitlines() if line.startswith("rackfit export ")]
    assert len(commands) == 3
    for name, command in zip(("keep", "fuller", "best"), commands, strict=True):
        assert promised[name] > 0
        instance, layout, _ = read_result(folder / "change" / f"{name}.json")
        judged = evaluate(instance, layout)
        assert judged.feasible
        # the command writes launch files, which read back give what was promised
        rackfit(*shlex.split(command)[1:])
        again = evaluate_running(scenario("sglang"), "sglang", folder / "change" / name).evaluation
        for found in (judged, again):
            assert found.output_tokens_per_s is not None
            assert before.output_tokens_per_s is not None
            rise = found.output_tokens_per_s / before.output_tokens_per_s - 1
            assert rise == pytest.approx(promised[name], abs=1e-3)


def test_what_is_loaded_is_counted(folder: Path) -> None:
    running = evaluate_running(scenario(), "sglang", folder / "run.sh", compare=True)
    assert running.keep is not None
    old = running.layout.expert_maps
    new = running.keep.layout.expert_maps
    stage = running.layout.replicas[0].stages[0]
    assert stage.expert_map is not None
    moved = 0
    for layer, row in old[stage.expert_map].items():
        width = len(row) // len(stage.chips)
        for chip in range(len(stage.chips)):
            part = slice(chip * width, (chip + 1) * width)
            moved += len(set(new[stage.expert_map][layer][part]) - set(row[part]))
    assert running.keep.difference.loads == moved
    size = running.instance.operations.kinds[0].moe
    assert size is not None
    assert running.keep.difference.moved.total_bytes == pytest.approx(moved * size.expert_bytes)
    assert running.as_dict()["keep"]["expert_copies_to_load"] == moved


def test_an_engine_that_loads_no_placement_is_not_told_to(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "vllm serve x --tensor-parallel-size 8 --enable-expert-parallel\n"
    )
    instance = resolve_instance(scenario("vllm"))
    layout = import_deployment(instance, "vllm", tmp_path / "run.sh").layout
    found, why = placed_anew(instance, layout)
    assert found is None
    assert "takes no expert placement" in why


def test_into_is_for_compare(folder: Path) -> None:
    done = CliRunner().invoke(
        build_app(),
        ["evaluate", str(folder / "run.sh"), "--from", "sglang", *QUESTION, "--into", "x"],
    )
    assert isinstance(done.exception, InstanceError)
    assert "--compare" in str(done.exception)


def test_fewer_sequences_that_meet_a_missed_target_are_named(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "vllm serve x -tp 8 --enable-expert-parallel --max-num-seqs 512\n"
    )
    asked = Scenario.model_validate(
        {**scenario("vllm").model_dump(exclude_unset=True), "slo": {"tpot": 0.006}}
    )
    running = evaluate_running(asked, "vllm", tmp_path / "run.sh", compare=True)
    assert {one.rule for one in running.evaluation.violations} == {"tpot_target"}
    assert running.filled is not None
    assert running.filled.mends
    assert not running.filled.change.evaluation.violations
    assert running.filled.words.startswith("--max-num-seqs: ")
    assert any("meets the targets, -" in words for words in running.as_dict()["words"])


def test_servers_that_hold_nothing_back_are_not_told_to_run_more(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("vllm serve x -tp 8 --enable-expert-parallel\n")
    running = evaluate_running(scenario("vllm"), "vllm", tmp_path / "run.sh", compare=True)
    assert running.fuller is None
    assert "fuller" not in running.as_dict()
