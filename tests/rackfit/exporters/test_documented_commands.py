"""docs/exports.md describes every target; its commands are run with those of the other pages."""

from __future__ import annotations

from pathlib import Path

from rackfit.exporters.registry import exporters

PAGE = Path(__file__).parents[3] / "docs" / "exports.md"


def test_every_target_is_described() -> None:
    text = PAGE.read_text()
    assert [name for name in exporters() if f"`{name}`" not in text] == []
