"""The first questions of ``make hunt``, as they come, and some that once found a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.hunt.asking import ask

SEEDS = range(13)
#: passes that send more than all KV, and slices of one chip
MENDED = (389, 547, 620)


@pytest.mark.parametrize("seed", [*SEEDS, *MENDED])
def test_nothing_is_wrong_with_the_answer(seed: int, tmp_path: Path) -> None:
    outcome = ask(seed, tmp_path)
    assert outcome.answer in ("optimal", "feasible", "infeasible")
    assert outcome.failures == []
