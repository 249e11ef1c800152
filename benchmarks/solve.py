"""Time, gap and memory of whole solves, measured in one run from process start.

Each deployment runs in a process of its own, as a user would run it. Ratios beside the times compare
with the first row, so that runs on different machines can be compared.

Usage: ``python benchmarks/solve.py [--gap 0.01]``
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass

#: DeepSeek-V3 and others at 4,000 in, 1,000 out, TTFT 2 s, TPOT 30 ms
DEPLOYMENTS = (
    ("deepseek-v3", "gb200-nvl72"),
    ("deepseek-v3", "gb200-nvl72@8"),
    ("deepseek-v3", "gb200-nvl72@64"),
    ("deepseek-v3", "hgx-h200@4"),
    ("deepseek-v3", "hgx-h200@8"),
    ("deepseek-v3", "vr-nvl72"),
    ("kimi-k2", "gb200-nvl72@2"),
    ("qwen3-235b-a22b", "hgx-h200@2"),
    ("gpt-oss-120b", "hgx-h100"),
    ("llama-3.1-405b", "hgx-b200"),
    ("llama-3.1-70b", "hgx-h100"),
)

#: runs the command line and then says how much memory it took
RUNNER = (
    "import resource, sys; from rackfit.cli.app import run; code = 4\n"
    "try: code = run()\n"
    "except SystemExit as done: code = done.code or 0\n"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); sys.exit(code)"
)


@dataclass(frozen=True)
class Row:
    """One deployment: seconds from process start to exit, peak memory, and the answer."""

    model: str
    cluster: str
    wall_s: float
    peak_mb: float
    answer: dict[str, object] | None


def run(model: str, cluster: str, gap: float) -> Row:
    """Solve one deployment in a fresh process."""
    command = [
        sys.executable, "-c", RUNNER, "solve", "--model", model, "--cluster", cluster,
        "--input-tokens", "4000", "--output-tokens", "1000", "--ttft", "2 s", "--tpot", "30 ms",
        "--gap", str(gap), "--json",
    ]  # fmt: skip
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall_s = time.perf_counter() - start
    peak_mb = float(done.stderr.split()[-1]) / 1024
    return Row(
        model, cluster, wall_s, peak_mb, json.loads(done.stdout) if not done.returncode else None
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gap", type=float, default=0.01)
    gap = parser.parse_args().gap
    print(
        f"{'model':17} {'cluster':15} {'s':>6} {'ratio':>6} {'MB':>5} {'gap':>7} {'$/M out':>9} {'tok/s/chip':>10} {'shapes':>7}"
    )
    first: float | None = None
    for model, cluster in DEPLOYMENTS:
        row = run(model, cluster, gap)
        first = first or row.wall_s
        head = f"{model:17} {cluster:15} {row.wall_s:6.1f} {row.wall_s / first:6.2f} {row.peak_mb:5.0f}"
        if row.answer is None:
            print(f"{head}  no layout")
            continue
        evaluation, solve = row.answer["evaluation"], row.answer["solve"]
        certificate = row.answer["certificate"]
        print(
            f"{head} {certificate['gap']:7.3%} {evaluation['usd_per_m_output_tokens']:9.4f} "
            f"{evaluation['output_tokens_per_s_per_gpu']:10.1f} {solve['shapes']:7}"
        )


if __name__ == "__main__":
    main()
