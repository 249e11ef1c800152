"""Every version of every engine that is kept can be asked for."""

from __future__ import annotations

import pytest

from costmodel.question.engine_files import engine_names, engine_versions, load_engine

KEPT = [f"{name}@{version}" for name in engine_names() for version in engine_versions(name)]


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_version_is_read(name: str) -> None:
    facts = load_engine(name)
    assert facts.version.startswith(name.partition("@")[2])
    assert facts.memory.usable <= 0.95


@pytest.mark.parametrize("name", ["sglang", "vllm"])
def test_two_versions_are_kept(name: str) -> None:
    assert len(engine_versions(name)) == 2
