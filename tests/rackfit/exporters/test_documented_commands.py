"""The commands of docs/exports.md run as they are written."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from rackfit.cli.app import main
from rackfit.exporters.registry import exporters

PAGE = Path(__file__).parents[3] / "docs" / "exports.md"


def _commands() -> list[list[str]]:
    block = PAGE.read_text().split("```console\n")[1].split("```")[0]
    return [shlex.split(line) for line in block.splitlines()]


def test_commands_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in _commands():
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        assert not stop.value.code, (words, said.err)
    assert (tmp_path / "sglang" / "commands.sh").is_file()
    assert "registry.example/sglang:1" in (tmp_path / "dynamo.yaml").read_text()
    assert "keep their role" in said.out


def test_every_target_is_described() -> None:
    text = PAGE.read_text()
    assert [name for name in exporters() if f"`{name}`" not in text] == []
