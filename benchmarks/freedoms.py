"""What each freedom of the search costs in time beside the plain question, each in a process of its own.

Usage: ``python -m benchmarks.freedoms [--gap 0.01]``
"""

from __future__ import annotations

import argparse
import os

from benchmarks.processes import Row, run

#: where freedoms are tried
MODEL, CLUSTER = "deepseek-v3", "gb200-nvl72"
#: options that add a freedom
FREEDOMS: dict[str, tuple[str, ...]] = {
    "drafts": ("--choose", "drafts=0..2", "--acceptance", "0.8"),
    "overlap": ("--choose", "overlap=off/on"),
    "chunk": ("--choose", "chunk=4096/8192"),
    "kv_dtype": ("--choose", "kv_dtype=fp8/bf16"),
    "weight_dtype": ("--choose", "weight_dtype=fp8/fp4"),
    "tiers": ("--choose", "tiers=none/host"),
    "drafts, overlap": ("--choose", "drafts=0/1,overlap=off/on", "--acceptance", "0.8"),
    "trays": ("--granularity", "tray"),
    "layer slots": ("--layer-slots", "rows"),
    "experts apart": ("--apart", "also"),
}


def _line(name: str, row: Row, plain: Row) -> str:
    head = f"{name:16} {row.wall_s:6.1f} {row.cpu_s:6.1f} {row.cpu_s / plain.cpu_s:6.2f}"
    if row.answer is None:
        return f"{head}  no layout"
    return (
        f"{head} {row.answer['certificate']['gap']:8.3%} "
        f"{row.answer['evaluation']['usd_per_m_output_tokens']:9.4f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gap", type=float, default=0.01)
    gap = parser.parse_args().gap
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    print(f"{'freedom':16} {'s':>6} {'cpu s':>6} {'ratio':>6} {'gap':>8} {'$/M out':>9}")
    plain = run(MODEL, CLUSTER, gap)
    print(_line("plain", plain, plain), flush=True)
    for name, options in FREEDOMS.items():
        print(_line(name, run(MODEL, CLUSTER, gap, *options), plain), flush=True)


if __name__ == "__main__":
    main()
