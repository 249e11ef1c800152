"""Runs a study: points through joblib, in any order, each kept as soon as it is done."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from costmodel.question.scenario import load_scenario
from rackfit.documents.output import make_folder, write_whole
from rackfit.figures.drawing import can_draw, chart_svg
from rackfit.figures.files import write_figures
from rackfit.studies.backends import Backend, answered, check_backend
from rackfit.studies.base import OPEN_GAP, Axes, Options, Row, Study, basis_words, solved
from rackfit.studies.grid import Point, make_points
from rackfit.studies.page import study_html, study_page
from rackfit.studies.point import solve_point
from rackfit.studies.registry import find_study
from rackfit.wording import amount, at_least, at_most
from topology.errors import InstanceError, Problem, noted

SCHEMA_VERSION = "1.0"
#: More processes than this are taken for a typing mistake.
MAX_JOBS = 1024


@dataclass(frozen=True)
class StudyResult:
    """A finished study: its table, in the order of its axes, and how many rows were reused."""

    study: Study
    base: Mapping[str, Any]
    axes: Axes
    rows: tuple[Row, ...]
    reused: int

    @property
    def failed(self) -> list[Row]:
        """Rows without an answer."""
        return [row for row in self.rows if row["error"]]

    @property
    def conclusion(self) -> list[str]:
        """Sentences computed from the table."""
        if not solved(self.rows):
            return ["No point has an answer."]
        said = self.study.conclude(self.rows)
        said += [
            f"Not settled: {self._place(row)}, {_between(row)}."
            for row in solved(self.rows)
            if row.get("gap", 0.0) > OPEN_GAP
        ]
        said += basis_words(self.rows)
        lost = len(self.failed)
        return [*said, f"{lost} of {len(self.rows)} points have no answer."] if lost else said

    def _place(self, row: Row) -> str:
        return ", ".join(f"{key} {row[key]}" for key in self.axes if key in row) or str(
            row["cluster_name"]
        )

    def as_dict(self) -> dict[str, Any]:
        """The published document as plain data."""
        return {
            "schema_version": SCHEMA_VERSION,
            "study": self.study.name,
            "question": self.study.question,
            "scenario": dict(self.base),
            "axes": self.axes,
            "conclusion": self.conclusion,
            "rows": list(self.rows),
        }

    def text(self) -> str:
        """The document as JSON text."""
        return json.dumps(self.as_dict(), indent=1, allow_nan=False) + "\n"

    def columns(self) -> list[str]:
        """Every column of the table: axes first, then what a terminal shows, then the rest."""
        found = dict.fromkeys(key for row in self.rows for key in row)
        first = [key for key in (*self.axes, *self.study.shown) if key in found]
        return list(dict.fromkeys([*first, *found]))

    def csv_text(self) -> str:
        """The table as CSV; what a row does not have is empty."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns(), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def write(self, folder: Path) -> list[Path]:
        """Write table (CSV, JSON), figures (SVG) and page (HTML) into ``folder``; the paths."""
        make_folder(folder)
        texts = {".json": self.text(), ".csv": self.csv_text()}
        if solved(self.rows):
            texts[".html"] = study_page(
                self.study,
                self.study.figures(self.rows),
                self.conclusion,
                self.rows,
                self.columns(),
                self.axes,
            )
        paths = [folder / f"{self.study.name}{ending}" for ending in texts]
        for path, text in zip(paths, texts.values(), strict=True):
            write_whole(text, path)
        return [*paths, *write_figures(self.figures(), svg=folder, png=None)]

    def _repr_html_(self) -> str:
        """What a notebook shows of the study."""
        charts = self.study.figures(self.rows) if solved(self.rows) else []
        return study_html(self.study, charts, self.conclusion, self.rows, self.axes)

    def figures(self) -> dict[str, str]:
        """The figures as standalone SVG, by a file's name without ending; none without an answer or
        without the extra ``rackfit[charts]``.
        """
        charts = self.study.figures(self.rows) if solved(self.rows) and can_draw() else []
        name = self.study.name
        return {
            name if number == 1 else f"{name}-{number}": chart_svg(chart)
            for number, chart in enumerate(charts, start=1)
        }


def default_cache() -> Path:
    """Where finished points are kept: ``$XDG_CACHE_HOME/rackfit/studies``."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "rackfit" / "studies"


def study(
    name: str,
    scenario: str | Mapping[str, Any] | None = None,
    *,
    over: Axes | None = None,
    jobs: int | None = None,
    backend: Backend = "loky",
    options: Options | None = None,
    cache: Path | None = None,
    on_point: Callable[[int, int, Row, bool], None] | None = None,
) -> StudyResult:
    """Ask a family of questions on the solver.

    Parameters
    ----------
    name
        A study of ``rackfit catalogue studies``; ``grid`` has no axes but those of ``over``.
    scenario
        Name or path of a scenario, or one as plain data (``None``: the study's own).
    over
        Axes that replace the study's or are crossed with them: ``{"slo.tpot": [0.02, 0.05]}``.
    jobs
        Processes; -1 is one per core (``None``: one, or all that a cluster has).
    backend
        ``loky`` on this machine, ``dask`` or ``ray`` on a cluster that they already know.
    options
        Gap, time limit and seed of each point.
    cache
        Folder of finished points (``None``: keep none); an interrupted study resumes from it.
    on_point
        Called with points done, points in all, the row, and whether it was reused.

    Returns
    -------
    StudyResult
        Every point's row, the failed ones with their reason in ``error``.

    Raises
    ------
    InstanceError
        Unknown study, axis or backend; a point that no scenario accepts.
    """
    if jobs is None:
        jobs = 1 if backend == "loky" else -1
    if not (jobs == -1 or 1 <= jobs <= MAX_JOBS):
        message = f"must be 1 to {MAX_JOBS}, or -1 for every core, got {jobs}"
        raise InstanceError(Problem("jobs", message))
    chosen = find_study(name)
    check_backend(backend)
    if problems := chosen.problems(over or {}):
        raise InstanceError(problems)
    base = _base(chosen, scenario)
    blocks = chosen.blocks(base, over or {})
    asked = chosen.name if chosen.answer is not None else ""
    work = partial(solve_point, options=options or Options(), cache=cache)
    points: list[Point] = []
    wrong: list[Problem] = []
    for block in blocks:
        with noted(wrong):
            points += make_points(base, block, chosen.parameters, asked)
    if wrong:
        raise InstanceError(dict.fromkeys(wrong))
    if not points:
        raise InstanceError(
            Problem("study", f"{name} has no points: every set of axes is left out")
        )
    axes = {key: values for block in blocks for key, values in block.items()}
    rows: dict[int, Row] = {}
    reused = 0
    for index, row, known in answered(work, points, _processes(jobs, len(points)), backend):
        rows[index] = row
        reused += known
        if on_point is not None:
            on_point(len(rows), len(points), row, known)
    return StudyResult(chosen, base, axes, tuple(rows[i] for i in range(len(points))), reused)


def _processes(jobs: int, points: int) -> int:
    """No more processes than points; two at least where other processes were asked for."""
    return jobs if jobs < 2 else max(2, min(jobs, points))


def _base(chosen: Study, scenario: str | Mapping[str, Any] | None) -> dict[str, Any]:
    data: Mapping[str, Any] = chosen.default
    if isinstance(scenario, str):
        data = load_scenario(scenario).model_dump(mode="json", exclude_none=True)
    elif scenario is not None:
        data = scenario
    return {**data, **chosen.fixed}


def _between(row: Row) -> str:
    """How far a point may be from the least possible cost; some studies search one point several times."""
    if "bound_usd_per_m_output_tokens" not in row:
        return f"at most {at_most(row['gap'], 1)} above the least possible cost"
    return (
        f"between ${at_least(row['bound_usd_per_m_output_tokens'])} and "
        f"${amount(row['usd_per_m_output_tokens'])}"
    )
