"""One solve in a process of its own, as a user would run it: seconds, processor time, peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

#: runs the command line and then says how much processor time and memory it took
RUNNER = (
    "import resource, sys; from rackfit.cli.app import run; code = 4\n"
    "try: code = run()\n"
    "except SystemExit as done: code = done.code or 0\n"
    "used = resource.getrusage(resource.RUSAGE_SELF)\n"
    "print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr); sys.exit(code)"
)


@dataclass(frozen=True)
class Row:
    """One deployment: seconds from process start to exit, peak memory, and the answer.

    ``cpu_s``: processor seconds, which other programs on the machine disturb less than ``wall_s``.
    """

    model: str
    cluster: str
    wall_s: float
    cpu_s: float
    peak_mb: float
    answer: dict[str, Any] | None


def run(model: str, cluster: str, gap: float, *options: str) -> Row:
    """Solve one deployment at 4,000 tokens in, 1,000 out, TTFT 2 s, TPOT 30 ms in a fresh process.

    ``options``: further ones of the command line.
    """
    command = [
        sys.executable, "-c", RUNNER, "solve", "--model", model, "--cluster", cluster,
        "--input-tokens", "4000", "--output-tokens", "1000", "--ttft", "2 s", "--tpot", "30 ms",
        "--gap", str(gap), "--json", *options,
    ]  # fmt: skip
    start = time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    wall_s = time.perf_counter() - start
    cpu_s, peak_kb = map(float, done.stderr.split()[-2:])
    answer = None if done.returncode else json.loads(done.stdout)
    return Row(model, cluster, wall_s, cpu_s, peak_kb / 1024, answer)
