"""The table of measured runs to start from, with one example row that is never used."""

from __future__ import annotations

import csv
import io

from rackfit.measurements.rows import EXAMPLE

#: columns of the template, with what the example row has in each
COLUMNS = {
    "id": EXAMPLE,
    "backend": "sglang",
    "model_path": "meta-llama/Llama-3.1-8B-Instruct",
    "system": "h100",
    "precision": "bf16",
    "isl": "1000",
    "osl": "200",
    "concurrency": "32",
    "launch": "--tp-size 2",
    "gpus": "2",
    "silicon_tpot_ms": "9.1",
    "silicon_ttft_ms": "120",
    "tpot_p99_ms": "11.5",
    "ttft_p99_ms": "310",
}


def table_text() -> str:
    """The CSV text."""
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([list(COLUMNS), list(COLUMNS.values())])
    return written.getvalue()
