"""Time, gap and memory of whole solves, measured in one run from process start.

Each deployment runs in a process of its own, as a user would run it. Ratios beside the times compare
with the first row, so that runs on different machines can be compared. Then how the time grows with
chips, with layers x experts and with shapes (:mod:`benchmarks.scaling`).

Usage: ``python -m benchmarks.solve [--gap 0.01] [--no-scaling]``
"""

from __future__ import annotations

import argparse
import os

from benchmarks.processes import run
from benchmarks.scaling import against_chips, against_layers_and_experts, against_shapes

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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gap", type=float, default=0.01)
    parser.add_argument("--no-scaling", action="store_true", help="only the table of deployments")
    given = parser.parse_args()
    gap = given.gap
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    print(
        f"{'model':17} {'cluster':15} {'s':>6} {'cpu s':>6} {'ratio':>6} {'MB':>5} {'gap':>7} "
        f"{'$/M out':>9} {'tok/s/chip':>10} {'shapes':>7}"
    )
    first: float | None = None
    for model, cluster in DEPLOYMENTS:
        row = run(model, cluster, gap)
        first = first or row.cpu_s
        head = (
            f"{model:17} {cluster:15} {row.wall_s:6.1f} {row.cpu_s:6.1f} {row.cpu_s / first:6.2f} "
            f"{row.peak_mb:5.0f}"
        )
        if row.answer is None:
            print(f"{head}  no layout", flush=True)
            continue
        evaluation, solve = row.answer["evaluation"], row.answer["solve"]
        certificate = row.answer["certificate"]
        print(
            f"{head} {certificate['gap']:7.3%} {evaluation['usd_per_m_output_tokens']:9.4f} "
            f"{evaluation['output_tokens_per_s_per_gpu']:10.1f} {solve['shapes']:7}",
            flush=True,
        )
    if not given.no_scaling:
        against_chips(gap)
        against_layers_and_experts(gap)
        against_shapes()


if __name__ == "__main__":
    main()
