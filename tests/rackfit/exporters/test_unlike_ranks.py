"""Ranks with unlike numbers of sequences: an engine has one limit, the figures are those of the layout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.evaluate import evaluate
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo, Workload
from rackfit.exporters.export import export_layout, write_files
from rackfit.exporters.launch.engine_limits import under_engine
from rackfit.importers.deployment import build_layout, import_deployment
from rackfit.importers.files import read_servers
from rackfit.importers.servers import FoundServer
from topology.errors import InstanceError

FIGURES = ("usd_per_m_output_tokens", "output_tokens_per_s", "ttft_s", "tpot_s", "chips_used")
PARTS = {
    "ranks": FoundServer(
        "ranks", "mixed", tp=1, attention_dp=4, pp=1, batch=40, sequences=(7, 10, 8, 10)
    ),
    "idle ranks": FoundServer(
        "idle", "mixed", tp=1, attention_dp=4, pp=1, batch=12, sequences=(0, 0, 2, 3)
    ),
    "microbatches": FoundServer(
        "microbatches", "mixed", tp=2, attention_dp=1, pp=2, batch=8, sequences=(7,)
    ),
}


def asked(engine: str) -> Instance:
    return under_engine(
        resolve_instance(
            Scenario(
                model="qwen3-30b-a3b",
                cluster="hgx-h100",
                workload=Workload(input_tokens=500, output_tokens=100),
                slo=Slo(ttft=2.0, tpot=0.03),
            )
        ),
        engine,
    )


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("engine", ["sglang", "trtllm", "vllm"])
def test_what_was_priced_is_read_back(engine: str, part: str, tmp_path: Path) -> None:
    instance, server = asked(engine), PARTS[part]
    layout = build_layout(instance, [server]).layout
    assert tuple(layout.replicas[0].rank_sequences()) == server.sequences
    exported = export_layout(instance, layout, engine)
    assert any("one limit for all ranks" in note for note in exported.notes)
    write_files(exported.files, tmp_path / "out")
    again = import_deployment(instance, engine, tmp_path / "out").layout
    assert again.replicas[0].rank_sequences() == layout.replicas[0].rank_sequences()
    judged = evaluate(instance, again)
    for name in FIGURES:
        assert getattr(judged, name) == pytest.approx(getattr(exported.deployed, name), rel=1e-9)


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "vllm"])
def test_the_limit_has_room_for_the_busiest_rank(engine: str, tmp_path: Path) -> None:
    instance = asked(engine)
    layout = build_layout(instance, [PARTS["ranks"]]).layout
    text = {
        name: file.replace(" sequences=7,10,8,10", "")
        for name, file in export_layout(instance, layout, engine).files.items()
    }
    write_files(text, tmp_path / "out")
    plain = import_deployment(instance, engine, tmp_path / "out").layout
    assert plain.replicas[0].rank_sequences() == [10] * 4


def test_a_remark_that_the_command_contradicts_is_left_out() -> None:
    server = replace(PARTS["ranks"], batch=80)
    built = build_layout(asked("vllm"), [server])
    assert built.layout.replicas[0].rank_sequences() == [20] * 4
    assert any("is left out" in note for note in built.notes)


def test_a_remark_beside_a_command_without_a_limit_is_left_out() -> None:
    built = build_layout(asked("vllm"), [replace(PARTS["ranks"], batch=None)])
    assert any("the command limits no sequences" in note for note in built.notes)


def test_as_many_conversations_wait_as_a_layout_may_have(tmp_path: Path) -> None:
    """Flash holds more than 100,000 of them for a rank; so many servers alike are none."""
    commands = tmp_path / "commands.sh"
    for remark, read in (("idle=flash:812661", True), ("count=812661", False)):
        commands.write_text(f"# rackfit: {remark}\nvllm serve m --max-num-seqs 3\n")
        if read:
            (server,) = read_servers("vllm", commands)
            assert server.idle == ("flash", 812_661)
        else:
            with pytest.raises(InstanceError, match="count: expected a whole number from 1 to 100"):
                read_servers("vllm", commands)


def test_a_remark_of_words_is_refused(tmp_path: Path) -> None:
    commands = tmp_path / "commands.sh"
    commands.write_text("# rackfit: sequences=3,many\nvllm serve m --max-num-seqs 3\n")
    with pytest.raises(InstanceError, match="sequences '3,many' is no whole number"):
        import_deployment(asked("vllm"), "vllm", commands)
