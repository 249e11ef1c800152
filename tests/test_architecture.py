"""Imports go one way, the evaluator cannot see the solver, files stay readable."""

from __future__ import annotations

import ast
from pathlib import Path

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


def test_no_catch_all_modules() -> None:
    banned = {"utils", "helpers", "common", "manager"}
    assert not [path for path in FILES if path.stem in banned]


def test_each_package_has_data_it_needs() -> None:
    for kind in ("models", "chips", "clusters", "workloads", "scenarios", "profiles"):
        assert any((ROOT / "instances" / kind).iterdir())
