"""A slice of ``make hunt``: a few of its questions, quick ones, one with an uplink that binds."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.hunt.asking import ask

SEEDS = (1, 4, 25, 33, 34, 62)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_wrong_with_the_answer(seed: int, tmp_path: Path) -> None:
    outcome = ask(seed, tmp_path)
    assert outcome.answer in ("optimal", "feasible")
    assert outcome.failures == []
