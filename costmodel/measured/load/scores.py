"""Errors of replayed load tests, by model and by stage or pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.measured.load.predict import Replayed, predict_load
from costmodel.measured.load.runs import LoadRun
from costmodel.question.traffic.sessions import Sessions
from topology.errors import InstanceError

#: name, measured and predicted in one unit
_MEASURES: tuple[tuple[str, Callable[[Replayed], tuple[float | None, float]]], ...] = (
    ("mean TTFT", lambda one: (one.run.ttft_ms.mean, 1e3 * one.met.ttft_s.mean)),
    ("P50 TTFT", lambda one: (one.run.ttft_ms.p50, 1e3 * one.met.ttft_s.p50)),
    ("P99 TTFT", lambda one: (one.run.ttft_ms.p99, 1e3 * one.met.ttft_s.p99)),
    ("mean E2E", lambda one: (one.run.e2e_ms.mean, 1e3 * one.met.e2e_s.mean)),
    ("P99 E2E", lambda one: (one.run.e2e_ms.p99, 1e3 * one.met.e2e_s.p99)),
    (
        "tokens/s",
        lambda one: (
            # conversations are replayed at their measured rate
            None
            if one.run.loop == "open" or one.run.converses
            else one.run.throughput.output_tokens_per_s,
            one.met.output_tokens_per_s,
        ),
    ),
)


@dataclass(frozen=True)
class LoadScore:
    """Median absolute relative error and median signed one, over ``n`` runs."""

    n: int
    median_ape: float
    bias: float


@dataclass(frozen=True)
class LoadValidation:
    """Replayed runs, and those that could not be with the reason."""

    replayed: tuple[Replayed, ...]
    unsupported: tuple[tuple[str, str], ...]

    def scores(self, some: Sequence[Replayed] | None = None) -> dict[str, LoadScore]:
        """Scores by measure, over runs that are not known to be overloaded."""
        chosen = [
            one
            for one in (self.replayed if some is None else some)
            if not one.run.overloaded and counts_alone(one.run, [r.run for r in self.replayed])
        ]
        found = {}
        for name, values in _MEASURES:
            errors = [
                predicted / measured - 1.0
                for measured, predicted in map(values, chosen)
                if measured
            ]
            if errors:
                found[name] = LoadScore(
                    len(errors), float(np.median(np.abs(errors))), float(np.median(errors))
                )
        return found

    def groups(self) -> dict[str, list[Replayed]]:
        """Runs by model, and by stage, pool and closed loop."""
        found: dict[str, list[Replayed]] = {}
        for one in self.replayed:
            run = one.run
            kind = "closed loop" if run.loop == "closed" else "pools" if run.pooled else "stages"
            found.setdefault(kind, []).append(one)
            found.setdefault(run.hf_model_id.rsplit("/", 1)[-1], []).append(one)
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        rows = []
        for one in self.replayed:
            met = one.met
            rows.append(
                {
                    "id": one.run.id,
                    "predicted": {
                        "ttft_ms": {k: 1e3 * v for k, v in vars(met.ttft_s).items()},
                        "e2e_ms": {k: 1e3 * v for k, v in vars(met.e2e_s).items()},
                        "itl_ms": {k: 1e3 * v for k, v in vars(met.tpot_s).items()},
                        "output_tokens_per_s": met.output_tokens_per_s,
                        "rate": met.rate,
                        "prefix_hit_rate": met.prefix_hit_rate,
                        "stable": met.stable,
                    },
                    "measured": {
                        "ttft_ms": one.run.ttft_ms.model_dump(exclude_none=True),
                        "e2e_ms": one.run.e2e_ms.model_dump(exclude_none=True),
                        "itl_ms": one.run.itl_ms_as_reported.model_dump(exclude_none=True),
                        "output_tokens_per_s": one.run.throughput.output_tokens_per_s,
                        "rate": one.run.achieved_rate,
                        "prefix_hit_rate": one.run.prefix_hit_rate_measured,
                        "overloaded": one.run.overloaded,
                    },
                }
            )
        return {
            "rows": rows,
            "scores": {k: vars(v) for k, v in self.scores().items()},
            "by": {
                name: {k: vars(v) for k, v in self.scores(some).items()}
                for name, some in self.groups().items()
            },
            "unsupported": [{"id": i, "reason": reason} for i, reason in self.unsupported],
        }


def counts_alone(run: LoadRun, runs: Sequence[LoadRun]) -> bool:
    """Whether a run is no pool of stages that have runs of their own."""
    if not run.pooled or run.exp_id is None:
        return True
    return not any(other.exp_id == run.exp_id and not other.pooled for other in runs)


def validate_load(
    runs: Sequence[LoadRun], profile: str, seed: int = 0, sessions: Sessions | None = None
) -> LoadValidation:
    """Replay every run that can be (:func:`predict_load`)."""
    replayed, unsupported = [], []
    for run in runs:
        try:
            replayed.append(predict_load(run, profile, seed, sessions))
        except InstanceError as error:
            unsupported.append((run.id, str(error).splitlines()[0]))
    return LoadValidation(tuple(replayed), tuple(unsupported))
