"""Notes say what the files rely on."""

from __future__ import annotations

import pytest
import yaml

from costmodel.question.engine_files import engine_names, engine_versions
from costmodel.question.traffic.load import load_traffic
from costmodel.replay.targets import Targets
from rackfit.cli.commands.export import TARGETS
from rackfit.documents.result import Result
from rackfit.exporters.export import export_layout
from rackfit.exporters.launch.hosts import Hosts
from rackfit.exporters.launch.options import option_table
from rackfit.exporters.launch.routers import QUEUE
from rackfit.exporters.registry import exporters
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer
from solver.traffic.asked import Asked, questions
from solver.traffic.ways import shortest_first
from tests.rackfit.exporters.small_layouts import question


def test_checkpoint_precision_is_named(deepseek: Result) -> None:
    notes = export_layout(deepseek.instance, deepseek.layout, "sglang").notes
    assert any("must hold weights as fp8" in note for note in notes)
    assert not any("by collectives" in note for note in notes)  # EP 32 and 1


def test_widths_without_all_to_all_are_named(gpt_oss: Result) -> None:
    exported = export_layout(gpt_oss.instance, gpt_oss.layout, "sglang", allow_approximate=True)
    assert any(
        note.startswith("experts on 5 chips exchange tokens by collectives (none)")
        for note in exported.notes
    )
    assert "--moe-a2a-backend none" in exported.files["commands.sh"]


def test_cut_experts_lie_on_all_chips_of_a_stage() -> None:
    """The note told the one chip of their `ep`."""
    instance = question("gpt-oss-120b", "hgx-h200")
    one = FoundServer("x", "mixed", tp=2, attention_dp=3, pp=1, batch=6, sharded_experts=True)
    layout = build_layout(instance, [one]).layout
    assert layout.replicas[0].cuts_experts
    notes = export_layout(instance, layout, "vllm").notes
    assert any(note.startswith("experts cut over 6 chips exchange tokens by") for note in notes)


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("vllm", ("--max-model-len 14089",)),
        ("sglang", ("--context-length 14089",)),
        ("trtllm", ("max_seq_len: 14089", "max_tokens_in_buffer: 14089")),
    ],
)
def test_servers_for_traffic_take_its_longest_request(
    target: str, options: tuple[str, ...]
) -> None:
    """They took requests up to the tokens that a sequence keeps on average, and refused most of the longer ones."""
    plain = question("llama-3.1-8b", "hgx-h200")
    asked = Asked(load_traffic("azure-conversation-2023", rate=5.0), Targets(2.0, 0.05))
    instance = questions(plain.scenario, asked).spread
    assert instance.workload.longest == 14089 > 5 * instance.workload.final_context
    pools = [
        FoundServer(role, role, tp=1, attention_dp=1, pp=1, batch=4)
        for role in ("prefill", "decode")
    ]
    exported = export_layout(instance, build_layout(instance, pools).layout, target)
    written = "\n".join(exported.files.values())
    assert all(option in written for option in options)
    kept = f"KV is sized for {instance.workload.final_context:,} of each on average"
    assert any(
        "a request may have 14,089 tokens" in note and note.endswith(kept)
        for note in exported.notes
    )


@pytest.mark.parametrize("target", ["sglang", "trtllm", "vllm", "dynamo"])
def test_the_shortest_prompt_first_needs_a_queue_before_the_servers(target: str) -> None:
    """Dynamo's router has one, which its frontend is told of; beside other engines it is said."""
    plain = question("llama-3.1-8b", "hgx-h200")
    pools = [
        FoundServer(role, role, tp=1, attention_dp=1, pp=1, batch=4)
        for role in ("prefill", "decode")
    ]
    layout = build_layout(plain, pools).layout
    for instance in (plain, shortest_first(plain)):
        put_off = instance is not plain
        exported = export_layout(instance, layout, target)
        said = [note for note in exported.notes if "shortest waiting prompt" in note]
        assert len(said) == put_off
        frontend = "--router-queue-threshold" in "".join(exported.files.values())
        assert frontend == (put_off and target == "dynamo")
        if frontend:
            graph = list(yaml.safe_load_all(exported.files["deployment.yaml"]))[-1]
            pod = graph["spec"]["services"]["Frontend"]["extraPodSpec"]
            assert pod["mainContainer"]["args"] == ["--http-port", "8000", *QUEUE]
            assert "8,192 tokens of an attention rank" in said[0]
        elif put_off:
            assert " ".join(QUEUE) in said[0]


@pytest.mark.parametrize("target", ["sglang", "trtllm", "vllm", "vllm-ascend"])
def test_what_is_served_and_how_it_starts_is_said(deepseek: Result, target: str) -> None:
    notes = export_layout(deepseek.instance, deepseek.layout, target, allow_approximate=True).notes
    assert any("a request may have 5,000 tokens" in note for note in notes)
    assert (
        "hosts are called rack0-host0 to rack0-host17; --hosts FILE (one name per line) writes yours"
        in notes
    )
    assert notes[-1].startswith("start: ")
    named = Hosts(deepseek.instance.cluster, None, [f"node{number}" for number in range(18)])
    notes = export_layout(
        deepseek.instance, deepseek.layout, target, hosts=named, allow_approximate=True
    ).notes
    assert not any("hosts are called" in note for note in notes)


def test_the_command_line_names_every_target() -> None:
    assert set(TARGETS) == set(exporters())


def test_option_tables_name_their_source() -> None:
    for engine in engine_names():
        for version in engine_versions(engine):
            table = option_table(f"{engine}@{version}")
            assert table.version == f"{table.data['title']} {table.data['version']}"
            assert table.data["version"].startswith(version)
            assert table.data["repository"].count("/") == 1
            assert table.data.get("limits", {}).keys() <= table.options.keys()
            assert set(table.data.get("spellings", {}).values()) <= table.options.keys()
