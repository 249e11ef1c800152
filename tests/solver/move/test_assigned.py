"""Rows to columns at the least sum: as trying all, and without SciPy, which a plain installation lacks."""

from __future__ import annotations

import subprocess
import sys
from itertools import permutations

import numpy as np
import pytest

from solver.move.onto_chips import _assigned


def test_the_least_sum_is_that_of_trying_all() -> None:
    rng = np.random.default_rng(0)
    for height, width in [(0, 0), (1, 1), (2, 3), (3, 3), (3, 5), (4, 4)] * 5:
        costs = rng.integers(0, 10**12, (height, width)).astype(float)
        costs[rng.random(costs.shape) < 0.2] = np.inf
        sums = [
            sum(costs[row, column] for row, column in enumerate(order))
            for order in permutations(range(width), height)
        ]
        if not np.isfinite(min(sums)):
            with pytest.raises(ValueError, match="no assignment"):
                _assigned(costs)
            continue
        rows, columns = _assigned(costs)
        assert len(set(columns.tolist())) == height
        assert costs[rows, columns].sum() == min(sums)


def test_moves_need_no_scipy() -> None:
    code = "import sys; sys.modules['scipy'] = None; import solver.move.move"
    subprocess.run([sys.executable, "-c", code], check=True)
