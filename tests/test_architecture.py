"""Imports go one way and never in a circle, the evaluator cannot see the solver, files stay readable."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType

import networkx as nx
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


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def imports_between_files() -> nx.DiGraph[str]:
    """Which file imports which, also inside functions and under ``TYPE_CHECKING``.

    A package's ``__init__`` is its front door: it may import its rooms, and is no part of a circle.
    """
    rooms = {module_name(path) for path in FILES if path.name == "__init__.py"}
    files = {module_name(path) for path in FILES} - rooms
    graph: nx.DiGraph[str] = nx.DiGraph()
    for path in FILES:
        name = module_name(path)
        for node in ast.walk(ast.parse(path.read_text())):
            found: list[str] = []
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, path
                found = [f"{node.module}.{alias.name}" for alias in node.names] + [str(node.module)]
            graph.add_edges_from((name, one) for one in found if one in files and one != name)
    return graph


def test_no_files_import_each_other() -> None:
    groups = nx.strongly_connected_components(imports_between_files())
    assert [sorted(group) for group in groups if len(group) > 1] == []


#: folders in which each file is one thing that is found by its name
SHELVES = {
    "topology/builders", "topology/scaleout", "costmodel/models/families", "costmodel/rules",
    "solver/rules", "rackfit/cli/commands", "rackfit/studies/questions",
}  # fmt: skip
MOST_SIDE_BY_SIDE = 15
MOST_LINES = 300
MOST_POSITIONAL = 8


def test_no_folder_is_crowded() -> None:
    side = Counter(
        path.parent.relative_to(ROOT).as_posix() for path in FILES if path.name != "__init__.py"
    )
    crowded = {room for room, number in side.items() if number > MOST_SIDE_BY_SIDE}
    assert crowded - SHELVES == set()
    assert set(side) >= SHELVES


def test_no_file_is_long() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in FILES}
    assert {str(p.relative_to(ROOT)): n for p, n in lengths.items() if n > MOST_LINES} == {}


def test_no_function_takes_many_arguments_by_position() -> None:
    many = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
                number = len(names) - (names[:1] in (["self"], ["cls"]))
                if number > MOST_POSITIONAL:
                    many[f"{path.relative_to(ROOT)}: {node.name}"] = number
    assert many == {}


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
