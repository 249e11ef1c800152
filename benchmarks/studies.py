"""A free grid of 1,000 points in one process and in two, in turn: wall and processor time, equal rows.

``python -m benchmarks.studies [ROUNDS]``. Each run is a process of its own, so that nothing is warm.
Beside it stands what the machine gives: two single runs of half the grid each at the same time, which
share nothing but the machine. A machine with other work on it gives less than twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import time
from statistics import median
from typing import Any

from joblib.externals.loky import get_reusable_executor

from rackfit.studies.base import Options
from rackfit.studies.run import study

BASE = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"}
TARGETS = [round(0.01 + 0.002 * step, 4) for step in range(50)]
LENGTHS = [100 * (step + 1) for step in range(20)]


def run(jobs: int, targets: list[float]) -> dict[str, Any]:
    """One grid in this process: seconds from the call to the last row, processor seconds, rows."""
    over = {"slo.tpot": targets, "workload.output_tokens": LENGTHS}
    start = time.perf_counter()
    result = study("grid", BASE, over=over, jobs=jobs, options=Options(gap=0.05))
    wall_s = time.perf_counter() - start
    if jobs > 1:
        get_reusable_executor().shutdown(wait=True)  # workers count once they have ended
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    rows = json.dumps(result.rows, sort_keys=True).encode()
    return {
        "wall_s": wall_s,
        "cpu_s": sum(one.ru_utime + one.ru_stime for one in used),
        "points": len(result.rows),
        "failed": len(result.failed),
        "rows": hashlib.sha256(rows).hexdigest(),
    }


def started(jobs: int, targets: list[float]) -> subprocess.Popen[str]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.studies", "one", str(jobs), json.dumps(targets)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path])),
    }
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a process printed."""
    told, _ = process.communicate()
    if process.returncode:
        sys.exit(f"a run failed with code {process.returncode}")
    found: dict[str, Any] = json.loads(told)
    return found


def main(rounds: int) -> int:
    """Print the table; 1 where any two runs differ."""
    one, two, apart = [], [], []
    for number in range(rounds):
        load = os.getloadavg()[0]
        one.append(answer(started(1, TARGETS)))
        two.append(answer(started(2, TARGETS)))
        halves = [started(1, half) for half in (TARGETS[::2], TARGETS[1::2])]
        apart.append(max(answer(process)["wall_s"] for process in halves))
        print(
            f"round {number + 1}, load before {load:.1f}: {one[-1]['points']} points, "
            f"{one[-1]['failed']} failed; one process {one[-1]['wall_s']:.1f} s "
            f"({one[-1]['cpu_s']:.1f} s of processor), two {two[-1]['wall_s']:.1f} s "
            f"({two[-1]['cpu_s']:.1f} s), halves apart {apart[-1]:.1f} s; "
            f"{one[-1]['wall_s'] / two[-1]['wall_s']:.2f} times as fast, "
            f"{one[-1]['wall_s'] / apart[-1]:.2f} with halves apart",
            flush=True,
        )
    ratios = [first["wall_s"] / second["wall_s"] for first, second in zip(one, two, strict=True)]
    limits = [first["wall_s"] / half for first, half in zip(one, apart, strict=True)]
    print(
        f"median: two processes are {median(ratios):.2f} times as fast as one; "
        f"the machine gives {median(limits):.2f}"
    )
    same = len({found["rows"] for found in [*one, *two]}) == 1
    print("the rows are identical" if same else "THE ROWS DIFFER")
    return 0 if same else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(run(int(sys.argv[2]), json.loads(sys.argv[3]))))
    else:
        sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 3))
