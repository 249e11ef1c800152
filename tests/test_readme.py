"""What README.md says is true: its output is real, its examples run."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from costmodel.question.scenario import Scenario
from rackfit.cli.app import build_app
from topology.catalogue import data_dir

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_two_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("solve", "test", "lint", "bench"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "make solve" in README
    assert "make test" in README


def test_output_is_what_the_command_prints() -> None:
    spec = importlib.util.spec_from_file_location("update_readme", ROOT / "docs/update_readme.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    blocks = list(script.BLOCK.finditer(README))
    assert blocks
    for block in blocks:
        assert block["text"] == script.output_of(block["command"])


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_python_examples_run(code: str) -> None:
    exec(compile(code, "README.md", "exec"), {})


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))
def test_yaml_examples_are_scenarios(text: str) -> None:
    Scenario.model_validate(yaml.safe_load(text))


def commands() -> list[str]:
    """Every ``rackfit`` line of the README's plain blocks."""
    blocks = re.findall(r"^```(\S*)[^\n]*\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    plain = "".join(text for kind, text in blocks if not kind)
    return [line for line in plain.splitlines() if line.startswith("rackfit ")]


def test_commands_are_found() -> None:
    assert len(commands()) >= 10


@pytest.fixture(scope="module")
def layout_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout that the README's export reads, for the engine that it names."""
    out = tmp_path_factory.mktemp("solved") / "layout.json"
    args = ["solve", "deepseek-v3-gb200-nvl72", "--engine", "sglang", "--out", str(out)]
    assert CliRunner().invoke(build_app(), args).exit_code == 0
    return out


@pytest.mark.parametrize("line", commands())
def test_command_examples_run(
    line: str, layout_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(layout_file, tmp_path)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "counts.npz", counts=rng.integers(1, 999, (2, 256)))
    tokens = np.argsort(rng.random((1000, 2, 256)), axis=2)[:, :, :8]
    np.savez(tmp_path / "tokens.npz", tokens=tokens)
    config = data_dir("models") / "qwen3-30b-a3b.json"
    line = line.split("#")[0].replace("path/to/config.json", str(config))
    result = CliRunner().invoke(build_app(), shlex.split(line)[1:])
    assert result.exit_code == 0, result.output


def test_picture_names_the_packages() -> None:
    for package in ("instances/", "topology/", "costmodel/", "solver/", "rackfit/"):
        assert package in README
