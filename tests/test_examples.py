"""The notebooks of ``examples`` run from top to bottom, and show what they are kept with."""

from __future__ import annotations

import importlib.util
import json
import re
from base64 import b64decode
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "update_notebook", ROOT / "docs" / "update_notebook.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(notebook: dict[str, Any]) -> list[list[tuple[str, list[str]]]]:
    """Of each cell of code: the kinds of its outputs."""
    return [
        [(out["output_type"], sorted(out.get("data", {}))) for out in cell["outputs"]]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_an_example_runs_from_top_to_bottom(path: Path, script: ModuleType) -> None:
    kept = json.loads(path.read_text(encoding="utf-8"))
    done = script.executed(kept)
    assert shown(done) == shown(kept)
    pages = [
        "".join(out["data"]["text/html"])
        for cell in done["cells"]
        for out in cell.get("outputs", ())
        if "text/html" in out.get("data", {})
    ]
    answer = pages[0]
    assert "per million output tokens" in answer
    assert answer.count("<title>r0g") == 8  # every chip is on the map
    drawings = [
        b64decode(data)
        for page in pages
        for data in re.findall('src="data:image/svg.xml;base64,([^"]*)"', page)
    ]
    assert len(drawings) >= 2
    for drawing in drawings:
        assert ElementTree.fromstring(drawing).tag.endswith("svg")
    assert not any("<script" in page for page in pages)


def test_there_is_an_example() -> None:
    assert NOTEBOOKS
