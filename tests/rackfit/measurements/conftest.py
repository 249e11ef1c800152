"""Results of tools, in a folder; the module that writes them stands where they are damaged, too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "fuzz"))  # last: other folders have a conftest, too


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the results of every tool."""
    import results

    results.write(tmp_path)
    return tmp_path
