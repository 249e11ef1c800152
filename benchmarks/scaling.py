"""How the time of a solve grows: with chips, with layers x experts, with shapes.

Processor seconds from process start, and the exponent ``b`` of ``a x^b`` fitted by least squares to their
logarithms: over all points, and over the larger half, where the seconds that every start takes weigh less.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.processes import run
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from solver.bounds.pricing import Pricer
from solver.shapes.pools import pool_classes
from solver.shapes.shapes import enumerate_shapes
from topology.catalogue import resolve

#: racks of 72 chips
RACKS = (1, 2, 4, 8, 16, 32, 64)

#: layers and routed experts of models that are DeepSeek-V3 otherwise
SIZES = ((16, 64), (31, 128), (61, 128), (61, 256), (122, 256), (122, 512))

#: clusters by how many shapes they allow
SHAPED = ("hgx-h200", "hgx-h200@4", "hgx-h200@8", "gb200-nvl72", "gb200-nvl72@2", "gb200-nvl72@8")


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """``b`` of the least-squares fit of ``log seconds = log a + b log size``."""
    x = [math.log(size) for size in sizes]
    y = [math.log(second) for second in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread


def fitted(name: str, sizes: Sequence[float], seconds: Sequence[float]) -> None:
    """Print the exponents of a table."""
    half = len(sizes) // 2
    print(
        f"exponent of {name}: {exponent(sizes, seconds):.2f} over all, "
        f"{exponent(sizes[half:], seconds[half:]):.2f} over the larger half"
    )


def against_chips(gap: float) -> None:
    """DeepSeek-V3 on more and more racks."""
    print(f"\n{'chips':>6} {'s':>6} {'cpu s':>6} {'MB':>5} {'gap':>7}")
    chips, seconds = [], []
    for racks in RACKS:
        row = run("deepseek-v3", f"gb200-nvl72@{racks}", gap)
        assert row.answer is not None
        chips.append(72.0 * racks)
        seconds.append(row.cpu_s)
        proven = row.answer["certificate"]["gap"]
        print(
            f"{72 * racks:6} {row.wall_s:6.1f} {row.cpu_s:6.1f} {row.peak_mb:5.0f} {proven:7.3%}",
            flush=True,
        )
    fitted("chips", chips, seconds)


def against_layers_and_experts(gap: float) -> None:
    """Models that differ from DeepSeek-V3 in layers and experts only, on one rack."""
    print(f"\n{'layers':>6} {'experts':>7} {'product':>8} {'s':>6} {'cpu s':>6} {'gap':>7}")
    products, seconds = [], []
    config = json.loads(resolve("deepseek-v3", "models").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        for layers, experts in SIZES:
            path = Path(folder) / f"layers{layers}-experts{experts}.json"
            config |= {"num_hidden_layers": layers, "n_routed_experts": experts}
            path.write_text(json.dumps(config), encoding="utf-8")
            row = run(str(path), "gb200-nvl72", gap)
            proven = (
                "no layout" if row.answer is None else f"{row.answer['certificate']['gap']:.3%}"
            )
            products.append(float(layers * experts))
            seconds.append(row.cpu_s)
            print(
                f"{layers:6} {experts:7} {layers * experts:8} {row.wall_s:6.1f} {row.cpu_s:6.1f} "
                f"{proven:>7}",
                flush=True,
            )
    fitted("layers x experts", products, seconds)


def against_shapes() -> None:
    """Bounding every shape of DeepSeek-V3: shapes per second of processor time, in this process."""
    print(f"\n{'cluster':15} {'shapes':>7} {'cpu s':>6} {'shapes/s':>8}")
    counts, seconds = [], []
    for cluster in SHAPED:
        question = {
            "model": "deepseek-v3", "cluster": cluster,
            "workload": {"input_tokens": 4000, "output_tokens": 1000},
            "slo": {"ttft": 2.0, "tpot": 0.03},
        }  # fmt: skip
        instance = resolve_instance(Scenario.model_validate(question))
        classes = pool_classes(instance.cluster)
        start = time.process_time()
        shapes = enumerate_shapes(instance, classes)
        Pricer(instance, classes).bounds(shapes)
        took = time.process_time() - start
        counts.append(float(len(shapes)))
        seconds.append(took)
        print(f"{cluster:15} {len(shapes):7} {took:6.2f} {len(shapes) / took:8.0f}", flush=True)
    order = sorted(range(len(counts)), key=lambda place: counts[place])
    fitted("shapes", [counts[p] for p in order], [seconds[p] for p in order])
