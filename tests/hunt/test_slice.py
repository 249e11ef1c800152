"""The first questions of ``make hunt``, as they come."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.hunt.asking import ask

SEEDS = range(13)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_wrong_with_the_answer(seed: int, tmp_path: Path) -> None:
    outcome = ask(seed, tmp_path)
    assert outcome.answer in ("optimal", "feasible", "infeasible", "refused")
    assert outcome.failures == []
