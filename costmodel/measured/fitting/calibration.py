"""Calibration from rows to a profile with its cross-validated errors. Needs scipy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.measured.fitting.crossvalidation import (
    FOLDS,
    LeftOut,
    fold_of,
    leave_out,
    predict_left_out,
)
from costmodel.measured.fitting.fit import Fitted, Problem, problem_of, start_of
from costmodel.measured.fitting.held_out import with_held_out
from costmodel.measured.fitting.intervals import parameter_intervals
from costmodel.measured.fitting.shipping import profile_of
from costmodel.measured.fitting.waves import fit_of_waves
from costmodel.measured.load.host import fit_host
from costmodel.measured.rows import MeasuredRow, Skipped, read_measured
from costmodel.measured.scores import Validation, scorable, validate_rows
from costmodel.question.profile import Profile
from topology.catalogue import data_dir
from topology.errors import InstanceError
from topology.errors import Problem as InputProblem

#: fewest rows that are fitted
LEAST_ROWS = 8


@dataclass(frozen=True)
class Calibration:
    """A fit, the profile it gives, its errors in sample and left out, and the rows it left aside.

    ``intervals``: 90 % intervals of every parameter by (chip, engine), name: (low, value, high).
    """

    problem: Problem
    fitted: Fitted
    profile: Profile
    validation: Validation
    left_out: tuple[LeftOut, ...]
    intervals: dict[tuple[str, str], dict[str, tuple[float, float, float]]]


def shipped_rows() -> tuple[list[MeasuredRow], list[Skipped]]:
    """The measurements that come with Rackfit."""
    return read_measured(data_dir("measured") / "silicon.csv.gz")


def calibrate(rows: Sequence[MeasuredRow], skipped: Sequence[Skipped], name: str) -> Calibration:
    """Fit rows. Raises ``InstanceError`` where too few can be used."""
    kept, aside = scorable(rows, skipped)
    if len(kept) < LEAST_ROWS:
        raise InstanceError(
            [
                InputProblem(
                    "measured rows", f"{len(kept)} can be used, at least {LEAST_ROWS} are needed"
                )
            ]
            + [InputProblem(one.id, one.reason) for one in aside[:20]]
        )
    as_read = problem_of(kept, start_of(kept).pricing(kept))
    problem, fitted, releases = fit_of_waves(as_read)
    # what all rows together say of a release is not known to those that left some out
    left_out = tuple(
        leave_out(as_read, key) for key in FOLDS if len({fold_of(run, key) for run in kept}) > 1
    )
    profile = with_held_out(profile_of(fitted, problem, left_out, name), problem, left_out)
    profile = profile.model_copy(update={"host": fit_host(kept, profile), "scattered": releases})
    return Calibration(
        problem=problem,
        fitted=fitted,
        profile=profile,
        validation=validate_rows(rows, skipped, profile),
        left_out=left_out,
        intervals=parameter_intervals(problem, fitted),
    )


def validate_unseen(
    rows: Sequence[MeasuredRow], skipped: Sequence[Skipped], key: str
) -> Validation:
    """Predict rows, each by a fit of the shipped measurements that never saw its model (system, engine).

    Raises ``InstanceError`` where no row is left.
    """
    kept, unsupported = scorable(rows, skipped)
    shipped, _ = scorable(*shipped_rows())
    found = predict_left_out(problem_of(shipped, start_of(shipped).pricing(shipped)), key, kept)
    return Validation(kept, unsupported, found.tpot_s, found.ttft_s)


def profile_json(profile: Profile) -> str:
    """A profile as the JSON text of its file."""
    return json.dumps(profile.model_dump(mode="json", exclude_defaults=True), indent=2) + "\n"
