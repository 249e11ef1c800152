"""The documentation is true: its examples run, its files are accepted, every public name is in it."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

import rackfit
from costmodel.question.profile import Efficiency, Profile
from costmodel.question.scenario import Scenario
from costmodel.question.speculation import Speculative
from costmodel.question.workload import Limits, Prices, Slo, Workload
from rackfit.cli.app import build_app, main
from rackfit.documents.schema import FOLDER
from topology.builders.base import builders
from topology.catalogue import data_dir
from topology.chip import Chip
from topology.scaleout.base import network_kinds
from topology.spec import ChipCount, ClusterSpec, DomainSpec
from topology.tier import TIER_KINDS, Tier

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
#: the examples of extending.md run in a copy of the repository (tests/test_extending.py)
HERE = [path for path in PAGES if path.stem != "extending"]
BLOCK = re.compile(
    r'^```(?P<kind>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL
)
SCHEMAS = {"chip": "chip", "tier": "tier", "cluster": "cluster", "workload": "workload",
           "question": "scenario", "profile": "profile"}  # fmt: skip


def script(name: str) -> ModuleType:
    """A program of ``docs``."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def site() -> ModuleType:
    """``docs/site_pages.py``."""
    return script("site_pages")


@pytest.mark.parametrize("page", [*HERE, ROOT / "README.md"], ids=lambda page: page.name)
def test_examples_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Files with a title are written, then commands run in order, then programs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").mkdir()
    shutil.copy(data_dir("models") / "qwen3-30b-a3b-fp8.json", tmp_path / "my-model/config.json")
    blocks = list(BLOCK.finditer(page.read_text()))
    for block in blocks:
        if block["title"]:
            (tmp_path / block["title"]).write_text(block["text"])
    lines = [
        line
        for block in blocks
        if block["kind"] == "console"
        for line in block["text"].splitlines()
    ]
    for line in lines:
        monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
        assert sys.argv[0] == "rackfit"
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        assert not stop.value.code, (line, said.err)
    code = "".join(block["text"] for block in blocks if block["kind"] == "python")
    if code and page.name != "README.md":  # its program is tested with the README
        (tmp_path / "page.py").write_text(code)
        done = subprocess.run(
            [sys.executable, "-W", "error", "page.py"],
            env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_output_shown_is_what_the_commands_print() -> None:
    """If this fails after a change of figures: make readme"""
    for page in script("update_readme").PAGES:
        if page.name != "README.md":  # in tests/test_readme.py
            assert script("update_readme").fresh(page) == page.read_text()


def test_data_files_of_the_page_pass_their_schema() -> None:
    checked = []
    for block in BLOCK.finditer((ROOT / "docs" / "instances.md").read_text()):
        if block["title"]:
            kind = SCHEMAS[block["title"].split(".")[0].removeprefix("my-")]
            schema = json.loads((FOLDER / f"{kind}.schema.json").read_text())
            jsonschema.validate(yaml.safe_load(block["text"]), schema)
            checked.append(kind)
    assert sorted(checked) == sorted(SCHEMAS.values())


def test_every_key_of_a_data_file_is_described() -> None:
    text = (ROOT / "docs" / "instances.md").read_text()
    models = [Chip, Tier, ClusterSpec, DomainSpec, ChipCount, Workload, Scenario, Slo, Prices, Limits,
              Speculative, Profile, Efficiency]  # fmt: skip
    models += [spec for spec, _ in builders().values()] + list(network_kinds().values())
    keys = {key for model in models for key in model.model_fields}
    assert sorted(key for key in keys if f"`{key}`" not in text) == []
    for kind in (*builders(), *network_kinds(), *TIER_KINDS):
        assert f"`{kind}`" in text


def test_every_public_name_is_in_the_reference_and_documented() -> None:
    listed = [name for names in site().API.values() for name in names]
    assert sorted(listed) == sorted(rackfit.__all__)
    page = site().api_page()
    silent = []
    for name in rackfit.__all__:
        found = getattr(rackfit, name)
        assert f"::: {rackfit._HOME[name]}.{name}\n" in page
        if not inspect.getdoc(found):
            silent.append(name)
        if inspect.isclass(found):
            silent += [
                f"{name}.{member}"
                for member, value in vars(found).items()
                if not member.startswith("_")
                and (callable(value) or isinstance(value, property))
                and not inspect.getdoc(value)
            ]
    assert silent == []


def test_example_of_the_reference_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", site().api_page(), re.DOTALL)
    exec(compile(code, "api.md", "exec"), {})


def test_every_command_and_option_is_in_the_reference() -> None:
    page = site().command_page()
    for command in build_app().registered_commands:
        section = page.split(f"## rackfit {command.name}\n")[1].split("\n## ")[0]
        assert command.callback is not None
        assert (inspect.getdoc(command.callback) or "undocumented").splitlines()[0] in section
        for parameter in inspect.signature(command.callback, eval_str=True).parameters.values():
            info = parameter.annotation.__metadata__[0]
            assert info.help, (command.name, parameter.name)
            assert info.help.replace("|", "\\|") in section
        words = [str(command.name), "--help"]
        text = CliRunner().invoke(build_app(), words, env={"COLUMNS": "200"}).output
        flags = set(re.findall(r"^\W*(--[a-z-]+)", text, re.MULTILINE)) - {"--help"}
        assert flags == set(re.findall(r"^\| `(--[a-z-]+)", section, re.MULTILINE))


def test_help_of_commands_flows_with_the_terminal() -> None:
    """Lines of docstrings are as long as those of the source, and broke off in the middle of a terminal's."""
    for command in build_app().registered_commands:
        assert command.help is not None
        assert "\n" not in command.help.replace("\n\n", ""), command.name


def test_navigation_names_pages_that_are_there() -> None:
    listed = set(re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    made = set(site().made_pages())
    assert listed - made == {page.name for page in PAGES} & listed
    assert made <= listed


def test_links_between_pages_lead_somewhere() -> None:
    made = set(site().made_pages())
    for page in PAGES:
        for target in re.findall(r"\]\(([\w-]+\.md)", page.read_text()):
            assert (ROOT / "docs" / target).is_file() or target in made, (page.name, target)


def _modules_with_examples() -> list[str]:
    found = []
    for package in ("topology", "costmodel", "solver", "rackfit"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if re.search(r"^\s*>>> ", path.read_text(), re.MULTILINE):
                parts = path.relative_to(ROOT).with_suffix("").parts
                found.append(".".join(part for part in parts if part != "__init__"))
    return found


@pytest.mark.parametrize("name", _modules_with_examples())
def test_docstring_examples_run(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name))
    assert outcome.attempted
    assert not outcome.failed


@pytest.mark.slow
def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    """As ``make docs``, where the extra ``docs`` is installed."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    text = (tmp_path / "api.html").read_text()
    for name in rackfit.__all__:
        assert f'id="{rackfit._HOME[name]}.{name}"' in text, name
