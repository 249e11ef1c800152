"""docs/extending.md is true: every example is written into a copy of the repository, and its commands run there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCK = re.compile(
    r'^```(?P<kind>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL
)
TREES = ("topology", "costmodel", "solver", "rackfit", "instances")
#: where a person may add a file
PLACES = (*TREES, "tests")
#: what a person may add
HEADINGS = (
    "A chip and a cluster of it",
    "A model family",
    "An engine",
    "An export target",
    "A rule",
    "A study",
    "A network between domains",
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of everything that runs."""
    copy = tmp_path_factory.mktemp("repository")
    for tree in TREES:
        shutil.copytree(ROOT / tree, copy / tree, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the person works: files of one example may serve the next."""
    return tmp_path_factory.mktemp("desk")


def run(arguments: list[str], repository: Path, desk: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=desk,
        env=os.environ | {"PYTHONPATH": str(repository), "XDG_CACHE_HOME": str(desk / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (arguments, done.stdout[-2000:], done.stderr[-3000:])
    return done.stdout


@pytest.mark.parametrize("heading", HEADINGS)
def test_an_example_works_with_the_files_it_names(
    heading: str, repository: Path, desk: Path
) -> None:
    part = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    written = set()
    for block in BLOCK.finditer(part):
        title, text = block["title"], block["text"]
        if title:
            inside = title.split("/")[0] in PLACES
            path = (repository if inside else desk) / title
            # a copy in which a person followed the page holds the file already
            assert not path.exists() or path.read_text(encoding="utf-8") == text, title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written |= {title} if inside else set()
        elif block["kind"] == "console":
            for line in text.splitlines():
                program, *arguments = shlex.split(line)
                assert program in ("rackfit", "python")
                words = ["-m", "rackfit"] if program == "rackfit" else []
                run([*words, *arguments], repository, desk)
        elif block["kind"] == "python":
            run(["-c", text], repository, desk)
    assert written


def test_every_section_is_tried() -> None:
    assert re.findall(r"^## (.+)$", PAGE, re.MULTILINE) == list(HEADINGS)
