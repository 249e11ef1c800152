"""The table of a study as a pandas data frame. Needs pandas installed."""

from __future__ import annotations

from typing import Any

from rackfit.documents.frames import pandas
from rackfit.studies.run import StudyResult


def study_frame(result: StudyResult) -> Any:
    """One row per point of a study: its axes, then figures, then ``error`` where it has no answer."""
    return pandas().DataFrame(list(result.rows), columns=result.columns()).rename_axis("point")
