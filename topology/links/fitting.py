"""Fits latencies and bandwidth fractions to measured rows: see ``python -m topology.links``.

Least mean absolute log error by a seeded random descent (few parameters, no dependency). Prints
errors in sample and held out (each software build, and each number of chips, left out in turn),
and writes one file per chip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from topology.links.fits import Fit
from topology.links.rows import MeasuredTime

_STEPS = 2500
Parameters = np.ndarray[tuple[int], np.dtype[np.float64]]


def predict(row: MeasuredTime, local: Fit | None, out: Fit | None) -> float:
    """Seconds that a fit says for a measured row."""
    return row.cost.rate(local, out).time(row.num_bytes)


def fit_local(rows: Sequence[MeasuredTime]) -> Fit:
    """The fit of one collective inside one domain: latency, its growth, fraction and ramp."""

    def make(x: Parameters) -> tuple[Fit, None]:
        return _fit(x[0], x[1], x[2], x[3]), None

    return make(_descend(rows, make, [5e-6, 2e-6, 0.65, 0.5]))[0]


def fit_dispatch(rows: Sequence[MeasuredTime]) -> tuple[Fit, Fit | None]:
    """The fit of dispatch and combine: scale-up fraction and latency, and those of the NICs."""
    across = any(row.cost.out_s_per_byte > 0 for row in rows)

    def make(x: Parameters) -> tuple[Fit, Fit | None]:
        out = _fit(x[3], 0.0, x[4], 0.0) if across else None
        return _fit(x[0], x[1], x[2], 0.0), out

    start = [10e-6, 1e-6, 0.6, 5e-6, 0.9] if across else [10e-6, 1e-6, 0.6]
    return make(_descend(rows, make, start))


def errors(rows: Iterable[MeasuredTime], local: Fit | None, out: Fit | None) -> list[float]:
    """Absolute relative errors of a fit on rows."""
    return [abs(predict(row, local, out) / row.seconds - 1) for row in rows]


def _fit(alpha: float, doubling: float, fraction: float, ramp: float) -> Fit:
    return Fit(
        alpha_s=float(alpha),
        alpha_per_doubling_s=float(doubling),
        fraction=min(1.0, float(fraction)),
        ramp=float(ramp),
    )


def _descend(
    rows: Sequence[MeasuredTime],
    make: Callable[[Parameters], tuple[Fit, Fit | None]],
    start: Sequence[float],
) -> Parameters:
    """Random descent on the logarithms of the parameters, seeded, with shrinking steps."""
    draw = np.random.default_rng(0)
    seconds = np.array([row.seconds for row in rows])
    sizes = np.array([row.num_bytes for row in rows])
    arrays = _Arrays(rows)

    def cost(x: Parameters) -> float:
        times = arrays.times(sizes, *make(np.exp(x)))
        return float(np.mean(np.abs(np.log(times / seconds))))

    best = np.log(np.array(start))
    least, width = cost(best), 0.5
    for step in range(_STEPS):
        trial = best + draw.normal(size=best.size) * width
        value = cost(trial)
        if value < least:
            best, least = trial, value
        if step % 150 == 149:
            width *= 0.75
    return np.asarray(np.exp(best))


class _Arrays:
    """The costs of rows as arrays, to evaluate a fit on all of them at once (as ``Cost.rate``)."""

    def __init__(self, rows: Sequence[MeasuredTime]):
        self._local = np.array([row.cost.local_s_per_byte for row in rows])
        self._out = np.array([row.cost.out_s_per_byte for row in rows])
        self._across = np.array([row.cost.out_latency_s > 0 for row in rows])
        self._doublings = np.array([math.log2(row.cost.local_chips) for row in rows])

    def times(self, sizes: Parameters, local: Fit, out: Fit | None) -> Parameters:
        inside = self._local / local.fraction
        outside = self._out / (out.fraction if out else 1.0)
        latency = local.alpha_s + local.alpha_per_doubling_s * self._doublings
        latency = latency + self._across * (out.alpha_s if out else 0.0)
        transfer = np.maximum(inside, outside) * sizes
        ramp = np.where(inside >= outside, local.ramp, 0.0)
        return np.asarray(latency + transfer + 2 * ramp * np.sqrt(latency * transfer))


def held_out(rows: Sequence[MeasuredTime], key: Callable[[MeasuredTime], object]) -> list[float]:
    """Errors on each group of rows by a fit to the others; rows are of one chip and one kind."""
    found: list[float] = []
    for group in sorted({str(key(row)) for row in rows}):
        inside = [row for row in rows if str(key(row)) != group]
        outside = [row for row in rows if str(key(row)) == group]
        if inside:
            dispatch = rows[0].kind == "dispatch"
            local, out = fit_dispatch(inside) if dispatch else (fit_local(inside), None)
            found += errors(outside, local, out)
    return found
