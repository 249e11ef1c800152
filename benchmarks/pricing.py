"""What a price costs, in one run on one core: evaluating a layout, bounding shapes.

CPU time of this process, so that other work on the machine matters less. *Evaluate*: the layout solved
for DeepSeek-V3 on a GB200 NVL72, 4,000 tokens in and 1,000 out; ``first`` with nothing read or cached
(instance and layout new), ``new layout`` with the instance known but no expert map read, ``again`` with both known
(what is kept then are the maps as arrays, chips and sequences of replicas and, for the instance, rates of chip
groups, expert loads by layer with their logarithms and the chance that so many tokens reach an expert, and
bytes of a layer by rank width; no price, no verdict). *Search*: every shape of every role with its largest batch, as a solve does
first (``first``: loads and rates of chip groups included).

``python -m benchmarks.pricing``
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from rackfit import solve
from solver.bounds.pricing import Pricer
from solver.shapes.pools import pool_classes
from solver.shapes.shapes import enumerate_shapes

CHAT = {"input_tokens": 4000, "output_tokens": 1000}
SCENARIO = {"workload": CHAT, "slo": {"ttft": 2.0, "tpot": 0.03}}
QUESTIONS = (
    ("deepseek-v3", "gb200-nvl72"),
    ("gpt-oss-120b", "gb200-nvl72"),
    ("llama-3.1-70b", "hgx-h100"),
)


def asked(model: str, cluster: str) -> Instance:
    """The question, read anew."""
    return resolve_instance(
        Scenario.model_validate(SCENARIO | {"model": model, "cluster": cluster})
    )


def cpu_s(work: Callable[[], object], times: int) -> list[float]:
    """CPU seconds of each of some runs, shortest first."""
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return sorted(found)


def evaluations() -> None:
    """Milliseconds of ``evaluate``."""
    layout: Layout = solve(asked(*QUESTIONS[0]), gap=0.01).layout
    replicas, chips = len(layout.replicas), sum(len(one.chips) for one in layout.replicas)
    print(f"evaluate, {replicas} replicas on {chips} chips; ms, best and median")
    instances = [asked(*QUESTIONS[0]) for _ in range(5)]
    new = [layout.model_copy() for _ in range(25)]
    fresh, known = iter(instances), iter(new)
    instance = instances[0]
    rows = (
        ("first", cpu_s(lambda: evaluate(next(fresh), next(known)), 5)),
        ("new layout", cpu_s(lambda: evaluate(instance, next(known)), 20)),
        ("again", cpu_s(lambda: evaluate(instance, layout), 21)[:20]),
    )
    for name, found in rows:
        print(f"  {name:12} {found[0] * 1e3:6.2f} {statistics.median(found) * 1e3:6.2f}")


def shapes_per_s(model: str, cluster: str) -> None:
    """Shapes bounded per second, each with the search for its batch."""
    instance = asked(model, cluster)
    classes = pool_classes(instance.cluster)
    shapes = enumerate_shapes(instance, classes)
    pricer = Pricer(instance, classes)
    first = cpu_s(lambda: pricer.bounds(shapes), 1)[0]
    again = cpu_s(lambda: pricer.bounds(shapes), 5)[0]
    print(
        f"  {model:14} {cluster:13} {len(shapes):7,} {len(shapes) / first:12,.0f} "
        f"{len(shapes) / again:12,.0f}"
    )


def main() -> None:
    """Print the two tables."""
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    evaluations()
    print("shapes with their largest batch, per CPU second")
    print(f"  {'':28} {'shapes':>7} {'first':>12} {'again':>12}")
    for model, cluster in QUESTIONS:
        shapes_per_s(model, cluster)


if __name__ == "__main__":
    main()
