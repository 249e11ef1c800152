"""A free grid of 1,000 points in one process and in two: wall time of each, and whether rows are equal.

``python -m benchmarks.studies`` on an otherwise idle machine of two cores or more.
"""

from __future__ import annotations

import os
import sys
import time

from rackfit.studies.base import Options
from rackfit.studies.run import study

BASE = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"}
OVER = {
    "slo.tpot": [round(0.01 + 0.002 * step, 4) for step in range(50)],
    "workload.output_tokens": [100 * (step + 1) for step in range(20)],
}


def main() -> int:
    """Print the table; 1 where the two runs differ."""
    rows, wall_s = {}, {}
    for jobs in (1, 2):
        start = time.perf_counter()
        result = study("grid", BASE, over=OVER, jobs=jobs, options=Options(gap=0.05))
        wall_s[jobs], rows[jobs] = time.perf_counter() - start, result.rows
        failed = len(result.failed)
        print(
            f"{jobs} process(es): {len(result.rows)} points, {failed} failed, {wall_s[jobs]:.1f} s"
        )
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"two are {wall_s[1] / wall_s[2]:.2f} times as fast; load averages {load}")
    same = rows[1] == rows[2]
    print("the rows are identical" if same else "THE ROWS DIFFER")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
