"""The load that a pool may carry: how unevenly requests come."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.question.traffic.requests import Requests
from solver.traffic.loads import dispersion


def arriving(arrival_s: np.ndarray) -> Requests:
    ones = np.ones(len(arrival_s), dtype=np.int64)
    return Requests(arrival_s, ones, ones, 0 * ones)


def test_dispersion_is_that_of_counts_in_windows() -> None:
    times = np.random.default_rng(2).gamma(0.3, 1.0, 500).cumsum()
    times -= times[0]
    counts = [
        int(((times >= start) & (times < start + 3.0)).sum())
        for start in np.arange(0.0, times[-1] - 3.0, 3.0)
    ]
    assert dispersion(arriving(times), 3.0) == pytest.approx(
        np.var(counts) / np.mean(counts), rel=1e-9
    )


def test_requests_that_come_once_in_years_take_no_memory() -> None:
    """Billions of windows, of which three have a request each: as even as chance."""
    assert dispersion(arriving(np.array([0.0, 1e9, 2.5e9, 3e9])), 0.3) == 1.0
