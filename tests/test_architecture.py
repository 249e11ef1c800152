"""Imports go one way and never in a circle, the evaluator cannot see the solver, files stay readable."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
ORDER = ("topology", "costmodel", "solver", "rackfit")
FILES = [path for package in ORDER for path in sorted((ROOT / package).rglob("*.py"))]


def imported(path: Path) -> set[str]:
    """Top-level modules that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    above = set(ORDER[ORDER.index(package) + 1 :])
    assert not imported(path) & above


@pytest.mark.parametrize("package", ["topology", "costmodel"])
def test_the_judge_has_no_solver(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        assert "ortools" not in imported(path), path


def test_no_file_is_long() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in FILES}
    assert {str(p): n for p, n in lengths.items() if n > 400} == {}


def architecture() -> ModuleType:
    """``docs/update_architecture.py``."""
    script = ROOT / "docs" / "update_architecture.py"
    spec = importlib.util.spec_from_file_location("update_architecture", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_and_its_picture_show_the_folders() -> None:
    """If this fails: python docs/update_architecture.py"""
    script = architecture()
    assert script.PACKAGES == ORDER
    text = script.PAGE.read_text()
    assert text == script.page(text)
    assert script.PICTURE.read_text() == script.picture()
    shown = {f"{package}/{room}" for package in ORDER for room in script.rooms(package)}
    assert shown == {
        path.parent.relative_to(ROOT).as_posix()
        for package in ORDER
        for path in (ROOT / package).glob("*/__init__.py")
    }


def test_the_path_of_a_question_has_ten_steps_in_files_that_are_there() -> None:
    text = architecture().PAGE.read_text()
    steps = text.split("## The path of a question", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^(\d+)\. ", steps, re.MULTILINE) == [str(step) for step in range(1, 11)]


@pytest.mark.parametrize("page", ["architecture", "glossary", "extending"])
def test_files_that_pages_name_are_there(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    named = set(
        re.findall(r"`((?:topology|costmodel|solver|rackfit|tests)/[\w/]+(?:\.py)?)/?`", text)
    )
    assert named
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_no_catch_all_modules() -> None:
    banned = {"utils", "helpers", "common", "manager"}
    assert not [path for path in FILES if path.stem in banned]


def test_each_package_has_data_it_needs() -> None:
    for kind in ("models", "chips", "clusters", "workloads", "scenarios", "profiles"):
        assert any((ROOT / "instances" / kind).iterdir())
