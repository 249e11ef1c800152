"""The wheel, installed in an empty environment of each Python there is, is typed and solves.

Interpreters are those of ``RACKFIT_PYTHONS`` (paths, joined as in ``PATH``), of ``PATH`` and of pyenv.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import rackfit

ROOT = Path(__file__).resolve().parent.parent
CONSUMER = ROOT / "tests" / "consumer" / "plan_capacity.py"
VERSIONS = ("3.11", "3.12", "3.13")


def run(*words: object, cwd: Path | None = None) -> str:
    """What a command prints; its messages are shown where it fails."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@cache
def interpreters() -> dict[str, Path]:
    """An interpreter of each version, where there is one that starts."""
    named = [Path(text) for text in os.environ.get("RACKFIT_PYTHONS", "").split(os.pathsep) if text]
    found = [shutil.which(f"python{version}") for version in VERSIONS]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    paths = [*named, *(Path(text) for text in found if text), *pyenv.glob("3.*/bin/python")]
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    answers: dict[str, Path] = {}
    for path in (*paths, Path(sys.executable)):
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            answers.setdefault(done.stdout.strip(), path)
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_wheel_installs_is_typed_and_solves(version: str, tmp_path: Path) -> None:
    if version not in interpreters():
        pytest.skip(f"no Python {version} on this machine")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    run(interpreters()[version], "-m", "venv", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    shutil.copy(CONSUMER, tmp_path)

    run(python, "-m", "pip", "install", "--quiet", wheel)
    layout = tmp_path / "layout.json"
    solve = ("solve", "deepseek-v3-gb200-nvl72", "--out", layout, "--json")
    answer = json.loads(run(tmp_path / "env" / "bin" / "rackfit", *solve, cwd=tmp_path))
    assert answer["status"] == "optimal"
    assert answer["solve"]["versions"]["python"].startswith(f"{version}.")
    assert run(python, "-W", "error", CONSUMER.name, cwd=tmp_path).endswith("\ndone\n")

    run(python, "-m", "pip", "install", "--quiet", "mypy")
    run(python, "-m", "mypy", "--strict", CONSUMER.name, cwd=tmp_path)


def test_consumer_touches_every_public_name() -> None:
    used = {
        node.attr
        for node in ast.walk(ast.parse(CONSUMER.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "rackfit"
    }
    assert set(rackfit.__all__) - {"ExpertLoads"} <= used


def test_consumer_is_typed_and_runs() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"  # of numpy's stubs too, which follow the interpreter
    run(sys.executable, "-m", "mypy", "--strict", "--python-version", version, CONSUMER, cwd=ROOT)
    done = subprocess.run(
        [sys.executable, "-W", "error", CONSUMER],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")
