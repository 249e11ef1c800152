"""Errors of predictions: relative, absolute and signed, over all rows and by model, system, engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.predict import bound_s, predict_under
from costmodel.measured.rows import MeasuredRow, Skipped
from costmodel.measured.runs import Run, runs_of
from costmodel.question.profile import Profile
from topology.errors import InstanceError, Problem

Array = NDArray[np.float64]
#: predictions and measurements this close to the bound count as on it
_SLACK = 1e-9

BELOW_BOUND = (
    "measured TPOT is below the physics bound at the stated concurrency: "
    "so many sequences were not decoded together"
)


@dataclass(frozen=True)
class Score:
    """Absolute relative errors (mean, median, 90th percentile), mean signed error, and rows."""

    mape: float
    median_ape: float
    p90: float
    bias: float
    n: int


def score(predicted: Array, measured: Array) -> Score | None:
    """Errors as shares of the measured value; ``None`` without rows."""
    if not len(measured):
        return None
    error = predicted / measured - 1.0
    size = np.abs(error)
    return Score(
        mape=float(size.mean()),
        median_ape=float(np.median(size)),
        p90=float(np.quantile(size, 0.9)),
        bias=float(error.mean()),
        n=len(measured),
    )


def possible(runs: Sequence[Run]) -> NDArray[np.bool_]:
    """Rows whose measured TPOT is not below what the hardware allows at the stated concurrency."""
    if not runs:
        return np.zeros(0, dtype=bool)
    bound = bound_s(runs)
    measured = np.array([run.row.tpot_s for run in runs])
    return np.asarray(measured >= bound * (1.0 - _SLACK))


@dataclass(frozen=True)
class Validation:
    """Predictions beside measurements. ``ttft_s`` and ``measured_ttft_s`` are NaN where not measured."""

    runs: tuple[Run, ...]
    unsupported: tuple[Skipped, ...]
    tpot_s: Array
    ttft_s: Array

    @property
    def measured_tpot_s(self) -> Array:
        """Measured seconds per output token."""
        return np.array([run.row.tpot_s for run in self.runs])

    @property
    def measured_ttft_s(self) -> Array:
        """Measured seconds to the first token."""
        return np.array([np.nan if run.row.ttft_s is None else run.row.ttft_s for run in self.runs])

    def tpot(self) -> Score | None:
        """Score of TPOT over all rows."""
        return score(self.tpot_s, self.measured_tpot_s)

    def ttft(self) -> Score | None:
        """Score of TTFT over the rows that measured it."""
        known = np.isfinite(self.measured_ttft_s)
        return score(self.ttft_s[known], self.measured_ttft_s[known])

    def by(self, key: str) -> dict[str, Score]:
        """TPOT scores by ``model``, ``system``, ``engine``, ``mode`` or ``concurrency``."""
        labels = np.array([label(run.row, key) for run in self.runs])
        found = {}
        for name in sorted(set(labels.tolist()), key=_natural):
            here = labels == name
            one = score(self.tpot_s[here], self.measured_tpot_s[here])
            if one is not None:
                found[name] = one
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain data: rows, summary, tables, unsupported rows."""
        rows = []
        for i, run in enumerate(self.runs):
            row = run.row
            rows.append(
                {
                    "id": row.id,
                    "model": row.model,
                    "system": row.system,
                    "engine": row.engine,
                    "concurrency": row.concurrency,
                    "predicted_tpot_ms": 1e3 * float(self.tpot_s[i]),
                    "predicted_ttft_ms": 1e3 * float(self.ttft_s[i]),
                    "measured_tpot_ms": 1e3 * row.tpot_s,
                    "measured_ttft_ms": None if row.ttft_s is None else 1e3 * row.ttft_s,
                    "measured_percentiles": dict(row.percentiles),
                    "tpot_ape": abs(float(self.tpot_s[i]) / row.tpot_s - 1.0),
                    "ttft_ape": None
                    if row.ttft_s is None
                    else abs(float(self.ttft_s[i]) / row.ttft_s - 1.0),
                }
            )
        tpot, ttft = self.tpot(), self.ttft()
        return {
            "schema_version": 1,
            "tpot": None if tpot is None else asdict(tpot),
            "ttft": None if ttft is None else asdict(ttft),
            "tables": {
                key: {name: asdict(one) for name, one in self.by(key).items()}
                for key in ("model", "system", "engine", "mode")
            },
            "rows": rows,
            "unsupported": [{"id": s.id, "reason": s.reason} for s in self.unsupported],
        }


def label(row: MeasuredRow, key: str) -> str:
    """A row's label for a table."""
    if key == "concurrency":
        power = max(0, round(float(np.log2(max(row.concurrency, 1.0))) / 2))
        return f"{4**power}"
    return str(getattr(row, key))


def _natural(name: str) -> tuple[float, str]:
    return (float(name), "") if name.isdecimal() else (0.0, name)


def validate_rows(
    rows: Sequence[MeasuredRow], skipped: Sequence[Skipped], profile: Profile
) -> Validation:
    """Predict rows under a profile. Raises ``InstanceError`` where no row is left."""
    kept, unsupported = scorable(rows, skipped)
    found = predict_under(kept, profile)
    return Validation(kept, unsupported, found.tpot_s, found.ttft_s)


def scorable(
    rows: Sequence[MeasuredRow], skipped: Sequence[Skipped]
) -> tuple[tuple[Run, ...], tuple[Skipped, ...]]:
    """Runs that can be scored, and the rows that cannot. Raises ``InstanceError`` where no row is left."""
    runs, unpriced = runs_of(rows)
    sound = possible(runs)
    kept = tuple(run for run, good in zip(runs, sound, strict=True) if good)
    below = [
        Skipped(r.row.id, BELOW_BOUND) for r, good in zip(runs, sound, strict=True) if not good
    ]
    unsupported = (*skipped, *unpriced, *below)
    if not kept:
        raise InstanceError(
            [Problem("no row can be scored", f"{len(unsupported)} rows left out")]
            + [Problem(s.id, s.reason) for s in unsupported[:20]]
        )
    return kept, unsupported
