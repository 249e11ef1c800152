"""Workers that somebody measured: which widths, batches and precisions on which chip, and how well they are predicted.

``instances/measured/workers.csv`` is written with the calibrated profile, one line per kind of worker. Nothing here
prices anything: it says how far a layout is from what was ever run.
"""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from math import log2

from topology.catalogue import data_dir

#: a batch up to so many times a measured one counts as measured
BATCH_REACH = 2.0
#: an octave of a width or a batch, another role or another precision count one each in the distance
_NEAREST = 3
FILE = "workers.csv"


@dataclass(frozen=True, slots=True)
class MeasuredWorker:
    """A kind of worker: ``sequences``: of one attention rank at least and at most over its runs.

    ``error``: median of the absolute relative error of TPOT, each run predicted by a fit without its model.
    """

    chip: str
    engine: str
    weights: str
    role: str
    tp: int
    attention_dp: int
    pp: int
    least_sequences: float
    most_sequences: float
    runs: int
    error: float


@dataclass(frozen=True, slots=True)
class Worker:
    """What is compared with them: one replica of a layout."""

    chip: str
    engine: str | None
    weights: str
    role: str
    tp: int
    attention_dp: int
    pp: int
    sequences: float


@lru_cache(maxsize=1)
def measured_workers() -> tuple[MeasuredWorker, ...]:
    """The shipped workers."""
    with (data_dir("measured") / FILE).open(encoding="utf-8", newline="") as text:
        return tuple(
            MeasuredWorker(
                raw["chip"], raw["engine"], raw["weights"], raw["role"], int(raw["tp"]),
                int(raw["attention_dp"]), int(raw["pp"]), float(raw["least_sequences"]),
                float(raw["most_sequences"]), int(raw["runs"]), float(raw["error"]),
            )
            for raw in csv.DictReader(text)
        )  # fmt: skip


def weights_label(quantisation: str) -> str:
    """The format of a model's weights, without how they are scaled."""
    return quantisation.split(",")[0].lower()


def built_alike(one: MeasuredWorker, chip: str, role: str, tp: int, ranks: int, pp: int) -> bool:
    """Whether a measured worker has this role and these widths on this chip."""
    return (one.chip, one.role, one.tp, one.attention_dp, one.pp) == (chip, role, tp, ranks, pp)


def widths_measured(chip: str, role: str, tp: int, ranks: int, pp: int, engine: str | None) -> bool:
    """Whether a worker of this role and these widths was measured on this chip (under this engine)."""
    return any(
        built_alike(one, chip, role, tp, ranks, pp) and engine in (None, one.engine)
        for one in measured_workers()
    )


def most_sequences(chips: Collection[str]) -> float:
    """Sequences of one rank that count as measured on all of these chips; 0 where nothing was measured."""
    found = [
        max((one.most_sequences for one in measured_workers() if one.chip == chip), default=0.0)
        for chip in chips
    ]
    return BATCH_REACH * min(found, default=0.0)


def missing_of(worker: Worker) -> list[str]:
    """Which of chip, role, widths, precision, batch and engine no measured run had, the first absent one first.

    Each is looked for beside what is named before it, so that one that is absent does not hide the others.
    """
    found = list(measured_workers())
    missing = []
    for name, holds in (
        ("chip", lambda one: one.chip == worker.chip),
        ("role", lambda one: one.role == worker.role),
        ("widths", lambda one: (one.tp, one.attention_dp, one.pp) == (worker.tp, worker.attention_dp, worker.pp)),
        ("precision", lambda one: one.weights == worker.weights),
        ("engine", lambda one: worker.engine in (None, one.engine)),
        ("batch", lambda one: worker.sequences <= BATCH_REACH * one.most_sequences),
    ):  # fmt: skip
        kept = [one for one in found if holds(one)]
        if kept:
            found = kept
        else:
            missing.append(name)
    return missing


def nearest_to(worker: Worker) -> list[tuple[float, MeasuredWorker]]:
    """The nearest measured workers and their distances, the nearest first."""
    apart = sorted(
        ((_distance(worker, one), place) for place, one in enumerate(measured_workers())),
        key=lambda pair: pair,
    )
    return [(distance, measured_workers()[place]) for distance, place in apart[:_NEAREST]]


def _distance(worker: Worker, one: MeasuredWorker) -> float:
    octaves = sum(
        abs(log2(own / other))
        for own, other in (
            (worker.tp, one.tp),
            (worker.attention_dp, one.attention_dp),
            (worker.pp, one.pp),
        )
    )
    beyond = max(worker.sequences / one.most_sequences, one.least_sequences / worker.sequences, 1.0)
    unlike = (
        2.0 * (worker.chip != one.chip)
        + (worker.role != one.role)
        + (worker.weights != one.weights)
        + (worker.engine not in (None, one.engine))
    )
    return octaves + log2(beyond) + unlike
