"""The measured workers that answers are compared with, as the text of a CSV file."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import astuple, fields

import numpy as np

from costmodel.measured.fitting.crossvalidation import LeftOut
from costmodel.measured.fitting.fit import Problem
from costmodel.measured.fitting.parameters import rounded
from costmodel.measured.runs import Run
from costmodel.question.measured_shapes import MeasuredWorker, weights_label

Key = tuple[str, str, str, str, int, int, int]


def workers_csv(problem: Problem, left_out: LeftOut) -> str:
    """One line per chip, engine, precision, role and widths, in that order."""
    found: dict[Key, list[tuple[float, float]]] = defaultdict(list)
    errors = np.abs(left_out.tpot_s / problem.measured_s - 1.0)
    for place, run in enumerate(problem.runs):
        for key, sequences in _workers(run, float(problem.batches[place])):
            found[key].append((sequences, float(errors[place])))
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow([field.name for field in fields(MeasuredWorker)])
    for key, runs in sorted(found.items()):
        batches = [batch for batch, _ in runs]
        error = float(np.median([one for _, one in runs]))
        line = MeasuredWorker(
            *key, rounded(min(batches)), rounded(max(batches)), len(runs), rounded(error)
        )
        table.writerow(astuple(line))
    return out.getvalue()


def _workers(run: Run, batch: float) -> Iterator[tuple[Key, float]]:
    """The workers of a run with the sequences (prefill: prompts) of one of their attention ranks."""
    row, weights = run.row, weights_label(run.instance.model.native_dtype)
    decode = row.decode
    role = "mixed" if row.prefill is None else "decode"
    widths = (decode.tp, decode.attention_dp, decode.pp)
    yield (run.chip, row.engine, weights, role, *widths), max(batch / decode.attention_dp, 1.0)
    if row.prefill is not None:
        one = row.prefill
        yield (run.chip, row.engine, weights, "prefill", one.tp, one.attention_dp, one.pp), 1.0
