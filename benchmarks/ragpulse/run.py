"""Static deployments that cover 90, 95 and 99 % of the RAGPulse day, each with its bound, beside published ones.

``python -m benchmarks.ragpulse.run [--seed N] [--bounds]``: the day of ``ragpulse-day``; a request is covered where its first token
comes within 1 s and its tokens within 50 ms on average. Deployments are one or several mixed replicas, or a prefill pool
beside a decode pool, of the shapes that the search bounds highest; of each kind the fewest GPUs are found by bisection,
each step a replay of every fourth half hour; then all 537,600 requests are replayed, with more GPUs until the floor is
reached. ``--bounds`` prints the bounds alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.ragpulse.deployments import Counts, Deployments, chips_of, scenario
from benchmarks.ragpulse.floors import Prices, Work, fewest
from costmodel.question.traffic.load import load_traffic
from costmodel.question.traffic.requests import Requests
from costmodel.question.traffic.reuse import known_before
from solver.shapes.shapes import ROLES

#: AISimulate's static deployments (examples/sweeper/nvopt-ragpulse, results of 2026-10-01): GPUs and coverage by floor
PUBLISHED = {0.90: (56, 0.9402), 0.95: (80, 0.9585), 0.99: (96, 0.9977)}
#: its best score without a floor: GPUs, coverage, share of the prompt tokens reused
THEIRS = (40, 0.7851, 0.1213)
MOST_CHIPS, WIDEST = 24, 16
#: tokens that an attention rank computes in a pass, of mixed replicas and of pools; GPUs of the decode pool
MIXED_CHUNK, POOLS_CHUNK, DECODE = 4096, 8192, (8, 6)


def ladders(requests: Requests, known: float) -> list[tuple[Deployments, list[Counts]]]:
    """Kinds of deployments, each from few GPUs to many."""
    found = []
    pools = Deployments(scenario(requests, known, POOLS_CHUNK), requests)
    for chips in DECODE:
        prefill = [
            pools.strongest("prefill", more, WIDEST) for more in range(1, MOST_CHIPS - chips + 1)
        ]
        decode = pools.strongest("decode", chips, WIDEST)
        found.append((pools, [(*one, *decode) for one in prefill if one]))
    mixed = Deployments(scenario(requests, known, MIXED_CHUNK), requests)
    alone = [mixed.strongest("mixed", chips, WIDEST) for chips in range(1, MOST_CHIPS + 1)]
    found.append((mixed, [way for way in alone if way]))
    return found


def least(deployments: Deployments, ways: Sequence[Counts], floor: float) -> Counts | None:
    """The first of some deployments that covers the floor: by bisection on a part of the day, then on all of it."""
    low, high = 0, len(ways)
    while low < high:
        middle = (low + high) // 2
        if covered(deployments, ways[middle], part=True) >= floor:
            high = middle
        else:
            low = middle + 1
    return next((way for way in ways[low:] if covered(deployments, way) >= floor), None)


def covered(deployments: Deployments, counts: Counts, *, part: bool = False) -> float:
    """Coverage of a deployment, told as soon as it is replayed."""
    began = time.process_time()
    known = deployments.knows(counts, part=part)
    met = deployments.replayed(counts, part=part)
    assert met.goodput is not None
    if not known:
        print(
            f"  {'part' if part else 'day '} {chips_of(counts):3} GPUs {said(deployments, counts)}: {met.goodput:.2%} "
            f"covered, TTFT P99 {met.ttft_s.p99:.2f} s, TPOT P99 {met.tpot_s.p99 * 1e3:.1f} ms, "
            f"{met.prefix_hit_rate:.1%} reused, {time.process_time() - began:.0f} s of CPU",
            flush=True,
        )
    return met.goodput


def said(deployments: Deployments, counts: Counts) -> str:
    """A deployment in words."""
    return " + ".join(
        f"{many} {role} of {chips} ({deployments.shape(role, chips)})"
        for role, chips, many in counts
    )


def theirs(requests: Requests, known: float) -> None:
    """Their static winner by our service times: three prefill workers of TP8, two decode workers of attention DP8."""
    own = Deployments(scenario(requests, known, 32_768), requests)
    table = own.search.shapes
    for name, role, tp in (("their prefill", "prefill", 8), ("their decode", "decode", 1)):
        alike = (table.role == ROLES.index(role)) & (table.tp == tp) & (table.slices == 1)
        rows = (alike & (table.attention_dp == 8 // tp) & (table.pp == 1)).nonzero()[0]
        row = int(rows[own.search.items.upper[rows].argmax()])
        rate = float(own.search.items.upper[row])
        own.best[name, 8] = replace(own.best[role, 8], shape=row, requests_per_s=rate)
    counts = (("their prefill", 8, 3), ("their decode", 8, 2))
    met = own.replayed(counts, routing="round-robin")
    gpus, coverage, reused = THEIRS
    print(
        f"their {gpus} GPUs, round robin: covered {met.goodput:.2%} here, {coverage:.2%} there; "
        f"{met.prefix_hit_rate:.2%} of the prompt tokens reused here, {reused:.2%} there"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bounds", action="store_true")
    asked = parser.parse_args()
    requests = load_traffic("ragpulse-day", seed=asked.seed)
    known = float(known_before(requests).sum() / requests.input_tokens.sum())
    work = Work.of(requests)
    prices = Prices.of(scenario(requests, known, POOLS_CHUNK), MOST_CHIPS)
    bounds = {floor: fewest(work, prices, floor, MOST_CHIPS) for floor in PUBLISHED}
    for floor, bound in bounds.items():
        print(f"{floor:.0%}: no schedule covers it with fewer than {bound} GPUs", flush=True)
    if asked.bounds:
        return
    kinds = ladders(requests, known)
    for floor, (gpus, coverage) in PUBLISHED.items():
        best: tuple[int, str] | None = None
        for deployments, ways in kinds:
            fewer = [way for way in ways if best is None or chips_of(way) < best[0]]
            way = least(deployments, fewer, floor)
            if way is not None:
                best = chips_of(way), f"{said(deployments, way)}: {covered(deployments, way):.2%}"
        found = f"nothing up to {MOST_CHIPS} GPUs" if best is None else f"{best[0]} GPUs, {best[1]}"
        print(
            f"{floor:.0%}: {found}; at least {bounds[floor]}; published {gpus} GPUs, {coverage:.2%}; "
            f"{time.process_time():.0f} s of CPU so far",
            flush=True,
        )
    theirs(requests, known)


if __name__ == "__main__":
    main()
