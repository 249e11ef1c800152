"""docs/gallery.md shows every study, and its pictures are there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from rackfit.studies.registry import studies

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("update_gallery", DOCS / "update_gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module  # its dataclasses look their own module up
    spec.loader.exec_module(module)
    return module


def test_every_study_and_claim_is_shown(script: ModuleType) -> None:
    text = (DOCS / "gallery.md").read_text()
    headings = set(re.findall(r"^## (.+)$", text, re.MULTILINE))
    assert set(studies()) <= headings
    for claim in script.CLAIMS:
        assert f"| {claim.claim} | {claim.stated} |" in text


def test_every_picture_is_an_svg_that_is_there() -> None:
    text = (DOCS / "gallery.md").read_text()
    pictures = re.findall(r"!\[[^\]]*\]\((gallery/[^)]+)\)", text)
    assert {Path(picture).stem.split(".")[0] for picture in pictures} >= set(studies())
    for picture in pictures:
        root = ElementTree.fromstring((DOCS / picture).read_text())
        assert root.tag.endswith("svg")
    assert {DOCS / picture for picture in pictures} == set((DOCS / "gallery").iterdir())


def test_claims_of_the_blackboard_are_what_the_tables_say(script: ModuleType) -> None:
    """Those that need no search are computed again."""
    text = (DOCS / "gallery.md").read_text()
    for claim in script.CLAIMS:
        if claim.claim.startswith(("Balance", "KV bytes", "Pipeline", "Over-training")):
            assert f"| {claim.computed({})} |" in text
