"""Notes say what the files rely on."""

from __future__ import annotations

import pytest

from costmodel.question.engine_files import engine_names, engine_versions
from rackfit.cli.commands.export import TARGETS
from rackfit.documents.result import Result
from rackfit.exporters.export import export_layout
from rackfit.exporters.hosts import Hosts
from rackfit.exporters.options import option_table
from rackfit.exporters.registry import exporters


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
