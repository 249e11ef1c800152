"""Layouts found for the first half of a trace, judged on its second half and on fresh draws.

``python -m benchmarks.traffic [--ask plain|peak|spare] [--cluster NAME] [--trace NAME] [--prefixes KEPT] [--limit S]``: DeepSeek-V3 on one NVL72 rack and on
nine HGX nodes, Azure's and Mooncake's conversations, TTFT P99 of 2 s and 10 s, TPOT P99 of 50 ms, 99 % goodput. The
rate is 60 % of what a steady answer serves at the mean lengths and the same targets; with ``peak`` the threefold of the
mean is. Prints money, gap, seconds (and those of the processor), and in how many replays the targets held. ``--limit`` gives
more than 60 s, for machines that do other work. ``--prefixes``: blocks of earlier prompts are kept.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import numpy as np

from costmodel.question.scenario import Scenario
from costmodel.question.traffic.load import load_traffic
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Slo, Workload
from costmodel.replay.replay import Course, replay
from costmodel.replay.router import Routing
from costmodel.replay.targets import Targets, judged
from rackfit.api import Result, solve
from solver.traffic.asked import Asked, Kept
from solver.traffic.losses import losses
from topology.errors import RackfitError

TRACES = {"azure-conversation-2023": 2.0, "mooncake-conversation": 10.0}
CLUSTERS = ("gb200-nvl72", "hgx-h200@9")
LOAD, TPOT_S, GOODPUT, FRESH, LIMIT_S = 0.6, 0.05, 0.99, 20, 60.0
#: requests of a fresh draw
COUNT = 10_000
ASKS = {"plain": (1.0, 0), "peak": (3.0, 0), "spare": (1.0, "node")}


def halves(whole: Requests) -> tuple[Requests, Requests]:
    """The requests up to the middle, and the rest from its own start."""
    middle = len(whole) // 2
    first, second = (whole.rows(np.arange(*ends)) for ends in ((0, middle), (middle, len(whole))))
    return first, replace(second, arrival_s=second.arrival_s - second.arrival_s[0])


def steady(cluster: str, requests: Requests, ttft_s: float) -> Result:
    """The steady answer at the mean lengths and the same targets."""
    workload = Workload(
        input_tokens=round(float(requests.input_tokens.mean())),
        output_tokens=round(float(requests.output_tokens.mean())),
    )
    slo = Slo(ttft=ttft_s, tpot=TPOT_S)
    return solve(Scenario(model="deepseek-v3", cluster=cluster, workload=workload, slo=slo))


def unseen(first: Requests, second: Requests, rate: float) -> Iterator[Requests]:
    """The second half, and stretches of the first drawn by seeds that the search did not use."""
    yield second.at_rate(rate)
    for turn in range(FRESH):
        yield first.at_rate(rate).again(COUNT, 1000 + turn).at_rate(rate)


def ask(kind: str, cluster: str, trace: str, prefixes: Kept, limit_s: float) -> None:
    """One question: solve on the first half, judge on what the search has not seen, print a line."""
    peak, spare = ASKS[kind]
    ttft_s = TRACES[trace]
    whole = load_traffic(trace)
    first, second = halves(whole.whole_prompts() if prefixes == "off" else whole)
    plain = steady(cluster, first, ttft_s)
    served = plain.evaluation.requests_per_s
    assert served is not None
    rate = LOAD * served / peak
    targets = Targets(ttft_s, TPOT_S, GOODPUT)
    scenario = Scenario(model="deepseek-v3", cluster=cluster, workload=plain.instance.workload)
    began, busy = time.perf_counter(), time.process_time()
    name = f"{kind:5} {cluster:11} {trace:23} {rate:7.1f}/s"
    try:
        found = solve(
            scenario, time_limit_s=limit_s, gap=0.05,
            traffic=Asked(first.at_rate(rate), targets, peak, spare, prefixes),
        )  # fmt: skip
    except RackfitError as error:
        print(f"{name}  {time.perf_counter() - began:.1f} s: {error}", flush=True)
        return
    took, busy = time.perf_counter() - began, time.process_time() - busy
    runs = list(unseen(first, second, rate * peak))
    routing: Routing = "least-loaded" if prefixes == "off" else "prefix-aware"
    told = found.search.traffic
    assert told is not None
    use = told.prefixes
    host = use is not None and use.tier == "host"
    course = Course.of(found.instance, routing=routing, host_tier=host)
    held = [
        judged(replay(found.instance, found.layout, one, course), targets).meets for one in runs
    ]
    after = [
        judged(replay(found.instance, rest, runs[1], course), targets).meets
        for rest in (losses(found.instance, found.layout, spare) if spare else ())
    ]
    lost = f"; after {sum(after)} of {len(after)} losses" if spare else ""
    print(
        f"{name}  ${found.evaluation.usd_per_m_output_tokens:.4f} (steady $"
        f"{plain.evaluation.usd_per_m_output_tokens:.4f}), gap {found.certificate.gap:.1%}, "
        f"{took:.1f} s ({busy:.1f} s of the processor){f'; prefixes {use}' if use else ''}; held in {sum(held)} of {len(held)} replays, the second half "
        f"{'among them' if held[0] else 'not'}{lost}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ask", choices=ASKS)
    parser.add_argument("--cluster", choices=CLUSTERS)
    parser.add_argument("--trace", choices=TRACES)
    parser.add_argument("--prefixes", choices=get_args(Kept), default="off")
    parser.add_argument("--limit", type=float, default=LIMIT_S)
    only = parser.parse_args()
    for kind in [only.ask] if only.ask else ASKS:
        for cluster in [only.cluster] if only.cluster else CLUSTERS:
            for trace in [only.trace] if only.trace else TRACES:
                ask(kind, cluster, trace, only.prefixes, only.limit)


if __name__ == "__main__":
    main()
