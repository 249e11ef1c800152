"""What ``rackfit size`` says to buy, each distinct unit taken away: replays of random arrivals at the peak.

``python -m benchmarks.plan.bought [--buy gb200-nvl72,hgx-h200] [--rate 500] [--peak 3] [--seed 0]`` sizes DeepSeek-R1 (3,000 prompt and
2,000 answer tokens) with one unit lost, TTFT 2 s and TPOT 25 ms. Three ways to run what was bought are replayed: the layout of the units
without the spare (a lost unit's work begun anew on it), a layout of all units of which one is taken away with the replicas
that stand on it, and one that was searched to survive each loss as it stands. Requests come by a Poisson process; judged are 99th
percentiles of those that come once the first could have ended.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.load import at_random
from costmodel.question.workload import Slo, Workload
from costmodel.replay.targets import Targets
from solver.clock import Clock
from solver.plan.sizing.peak import peak_replay
from solver.plan.sizing.size import Sized, Wanted, size
from solver.search import search
from solver.traffic.asked import Asked
from solver.traffic.search import search_traffic
from topology.errors import NoFeasibleLayout, NoLayoutInTime

TTFT_S, TPOT_S = 2.0, 0.025
#: seconds for the layout that survives each loss as it stands
_SURVIVING_S = 300.0


def question() -> Scenario:
    """The one that is sized."""
    return Scenario(
        model="deepseek-r1", cluster="gb200-nvl72", slo=Slo(ttft=TTFT_S, tpot=TPOT_S),
        workload=Workload(input_tokens=3000, output_tokens=2000),
    )  # fmt: skip


def on(scenario: Scenario, kind: str, units: int) -> Instance:
    """The question on so many units, all paid."""
    cluster = kind if units == 1 else f"{kind}@{units}"
    return resolve_instance(
        scenario.model_copy(update={"cluster": cluster, "rate": None, "pay": "whole"})
    )


def without_each(instance: Instance, layout: Layout, units: int) -> Iterator[tuple[int, Layout]]:
    """How many units are like the one that is lost, and the replicas that are left; each different loss once."""
    chips = [placed.id for placed in instance.cluster.chips]
    size_of = len(chips) // units
    alike: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
    for unit in range(units):
        gone = set(chips[unit * size_of : (unit + 1) * size_of])
        hit = tuple(i for i, one in enumerate(layout.replicas) if not gone.isdisjoint(one.chips))
        kinds = sorted(f"{layout.replicas[i].role} {layout.replicas[i].shape!r}" for i in hit)
        alike.setdefault(tuple(kinds), []).append(hit)
    for hits in alike.values():
        kept = tuple(one for i, one in enumerate(layout.replicas) if i not in hits[0])
        yield len(hits), layout.model_copy(update={"replicas": kept})


def replayed(instance: Instance, layout: Layout, units: int, rate: float, seed: int) -> str:
    """What requests met at the rate, in words."""
    met = peak_replay(instance, layout, units, rate, seed)
    return (
        f"{'meets' if met.meets else 'misses'}: {met.requests:,} requests, TTFT P99 {met.ttft_p99_s:.3f} s, "
        f"TPOT P99 {met.tpot_p99_s * 1e3:.2f} ms"
    )


def report(scenario: Scenario, one: Sized, wanted: Wanted, seed: int) -> None:
    """Replays of one kind."""
    if one.count is None:
        print(f"{one.kind}: {one.reason}")
        return
    left = one.count - one.spare
    laid = next(tried.layout for tried in one.tried if tried.units == left)
    print(
        f"{one.kind}: {one.count} units, {left} of them carry {one.carried_requests_per_s:,.0f} requests/s",
        flush=True,
    )
    print(f"  {left} units, the spare in place of the lost one: "
          f"{replayed(on(scenario, one.kind, left), laid, left, wanted.peak_rate, seed)}", flush=True)  # fmt: skip
    instance = on(scenario, one.kind, one.count)
    found = search(instance, clock=Clock(), gap=0.01, seed=seed)
    for units, layout in without_each(instance, found.layout, one.count):
        print(f"  all {one.count} units at work, one of {units} alike lost: "
              f"{replayed(instance, layout, one.count, wanted.peak_rate, seed)}", flush=True)  # fmt: skip
    report_surviving(scenario, one, wanted, seed)


def report_surviving(scenario: Scenario, one: Sized, wanted: Wanted, seed: int) -> None:
    """Replays of a layout of all units that was searched to survive the loss of any."""
    assert one.count is not None
    asked = Asked(
        at_random(resolve_instance(scenario).workload, wanted.peak_rate, seed),
        Targets(TTFT_S, TPOT_S),
        spare="rack",
    )
    instance = on(scenario, one.kind, one.count)
    try:
        found = search_traffic(
            instance.scenario, asked, clock=Clock(_SURVIVING_S), gap=0.05, seed=seed
        )
    except (NoFeasibleLayout, NoLayoutInTime) as error:
        print(f"  none of all {one.count} units survives each loss as it stands: {error}")
        return
    chips = sum(len(replica.chips) for replica in found.layout.replicas)
    print(f"  surviving as it stands: {chips:,} chips, at most {found.certificate.gap:.1%} above the bound", flush=True)  # fmt: skip
    for units, layout in without_each(instance, found.layout, one.count):
        print(f"  one of {units} alike lost, nothing begun anew: "
              f"{replayed(instance, layout, one.count, wanted.peak_rate, seed)}", flush=True)  # fmt: skip


def main() -> None:
    """Size and replay."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--buy", default="gb200-nvl72")
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--peak", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    wanted, scenario = Wanted(words.rate, words.peak, 1), question()
    for kind in words.buy.split(","):
        for one in size(scenario, [kind], wanted, clock=Clock(), gap=0.01, seed=words.seed):
            report(scenario, one, wanted, words.seed)


if __name__ == "__main__":
    main()
