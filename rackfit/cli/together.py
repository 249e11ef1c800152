"""``rackfit solve`` of a scenario with several models."""

from __future__ import annotations

import json as json_module
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rackfit.cli.interrupts import Stop
from rackfit.cli.question import Asked

if TYPE_CHECKING:
    from solver.together.divided import Divided

#: options that hold for all models; others are said by model, in the file
_SHARED = ("cluster", "pay", "profile", "granularity")
#: options that no file says either, and what to do
_INSTEAD = {
    "report": "is of one layout: name --out FOLDER, then rackfit report on each of FOLDER/layouts/*.json",
    "confidence": "is of one model, and no layouts of several are found for one: leave it out",
}


class Effort(NamedTuple):
    """How long and how far a search goes."""

    time_limit: float | None
    gap: float
    workers: int | None
    seed: int


def divide(
    asked: Asked, unlike: Mapping[str, object], effort: Effort, stop: Stop[Any], out: Path | None
) -> Divided:
    """The answer. ``unlike``: options of one model's question, by name; none of them may be said.

    Raises ``InstanceError`` with all problems, of options and of the file.
    """
    from costmodel.question.scenario import OnCluster
    from costmodel.together.question import Together, load_together
    from rackfit.api import solve_together
    from rackfit.documents.output import new_folder
    from rackfit.progress import ProgressPrinter
    from solver.clock import Clock
    from topology.catalogue import checked
    from topology.errors import InstanceError, Problem

    said = {key: value for key, value in asdict(asked).items() if value is not None}
    name = str(said.pop("scenario"))
    own = {key: said.pop(key) for key in _SHARED if key in said}
    said |= {key: value for key, value in unlike.items() if value is not None}
    problems = [
        Problem(
            f"--{key.replace('_', '-')}",
            _INSTEAD.get(key, "is of one model; of several, say it in the file"),
        )
        for key in said
    ]
    try:
        question = load_together(name)
        with checked("command line"):
            data = question.model_dump(exclude=set(OnCluster.model_fields) & set(own)) | own
            question = Together.model_validate(data)
    except InstanceError as error:
        problems += error.problems
    if problems:
        raise InstanceError(problems)
    if out is not None:
        new_folder(out)
    clock = stop.clock = Clock(effort.time_limit, started=stop.started)
    stop.kept = lambda: clock.kept()
    with ProgressPrinter(sys.stderr) as progress:
        return solve_together(
            question,
            time_limit_s=effort.time_limit,
            gap=effort.gap,
            workers=effort.workers,
            seed=effort.seed,
            on_progress=progress,
            clock=clock,
        )


def write_divided(found: Divided, workers: int | None, out: Path | None, *, as_json: bool) -> None:
    """Write the document and each model's layout, and print the answer."""
    from rackfit.documents.output import say, write_folder, write_whole
    from rackfit.documents.together_document import layout_files, together_document
    from rackfit.report.together_words import print_together

    data = together_document(found, workers or os.cpu_count() or 1)
    document = json_module.dumps(data, indent=1, allow_nan=False) + "\n"
    if out is not None:
        write_folder({"together.json": document, **layout_files(found)}, out)
    if as_json:
        write_whole(document, None)
        return
    print_together(found, written=out is not None)
    if out is not None:
        from rackfit.cli.next_step import export_step

        first = out / data["models"][0]["file"]
        step = export_step(first, found.models.instances[0], found.layouts[0])
        say(f"layouts written to {out}; next: {step}")
