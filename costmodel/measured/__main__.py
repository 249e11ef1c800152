"""``python -m costmodel.measured``: fit the shipped measurements, write the profile and its report.

Writes ``instances/profiles/calibrated.json``, ``instances/measured/workers.csv``, ``instances/measured/parameters.json``,
``instances/measured/worlds.csv.gz`` and ``docs/accuracy.md``; takes about two minutes. With
``--check`` nothing is written and the exit code says whether the files are up to date.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

# one thread: sums in one order, so that the files are the same bit for bit
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

from costmodel.measured.accuracy import accuracy_document  # noqa: E402
from costmodel.measured.fitting.calibration import calibrate, profile_json, shipped_rows  # noqa: E402
from costmodel.measured.fitting.resampling import worlds_csv, worlds_from  # noqa: E402
from costmodel.measured.fitting.workers import workers_csv  # noqa: E402
from costmodel.measured.own import prior  # noqa: E402
from costmodel.measured.own.shipped import known_of  # noqa: E402
from costmodel.question.measured_shapes import FILE  # noqa: E402
from costmodel.worlds import ensemble  # noqa: E402


def main() -> int:
    """Write (or check) the shipped profile and the accuracy report."""
    parser = argparse.ArgumentParser(prog="python -m costmodel.measured", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="compare with the files, write nothing"
    )
    check = parser.parse_args().check
    root = Path(__file__).resolve().parents[2]
    rows, skipped = shipped_rows()
    found = calibrate(rows, skipped, "calibrated")
    known = known_of(found.problem, found.fitted, found.profile.first_token)
    measured = root / "instances" / "measured"
    texts = {
        root / "instances" / "profiles" / "calibrated.json": profile_json(found.profile),
        measured / FILE: workers_csv(found.problem, found.left_out[0]),
        measured / prior.FILE: prior.known_json(known),
        root / "docs" / "accuracy.md": accuracy_document(found),
    }
    wanted = {path: text.encode() for path, text in texts.items()}
    wanted[measured / ensemble.FILE] = worlds_csv(worlds_from(found.problem.runs))
    stale = [
        path for path, data in wanted.items() if not path.is_file() or path.read_bytes() != data
    ]
    for path in stale:
        print(f"{path.relative_to(root)} {'is not up to date' if check else 'written'}")
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(wanted[path])
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
