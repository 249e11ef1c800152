"""How many requests a second of one core replays: the layout of the README's rack at most of its load.

``python -m benchmarks.replay [REQUESTS]``
"""

from __future__ import annotations

import sys
import time

from costmodel.question.traffic.description import Arrivals, steady
from costmodel.replay.replay import replay
from rackfit import solve


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    result = solve("deepseek-v3-gb200-nvl72")
    rate = result.evaluation.requests_per_s
    assert rate is not None
    print(f"{len(result.layout.replicas)} replicas, {count:,} requests of 1,000 output tokens")
    for load in (0.5, 0.8, 0.95):
        requests = steady(result.instance.workload, Arrivals(rate=load * rate), count, 0)
        began = time.process_time()
        met = replay(result.instance, result.layout, requests)
        spent = time.process_time() - began
        print(
            f"load {load:.0%}: {count / spent:,.0f} requests/s of CPU time, "
            f"{met.duration_s / spent:,.0f} times as fast as the cluster; TTFT P99 {met.ttft_s.p99:.3f} s"
        )


if __name__ == "__main__":
    main()
