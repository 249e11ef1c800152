"""Expert placement measured in one run: ours, EPLB, FlashLB-like, bound, time.

    python -m benchmarks.place [LOADS] [--dense-layers N] [--only one,several,left-out,nodes,together,affinity] [--splits all]

``LOADS`` is any file that ``rackfit place`` reads, for example recorded DeepSeek-V3 counts (61 rows,
3 dense); without it, generated loads matched to the published skew are used. Times are wall
seconds of one process and depend on the machine; imbalance is busiest over mean chip.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from benchmarks.baselines.eplb import chip_loads as even_loads
from benchmarks.baselines.eplb import eplb
from benchmarks.place.left_out import left_out
from benchmarks.place.nodes import SIZES as NODE_SIZES
from benchmarks.place.nodes import drawn_nodes, nodes_and_traffic
from benchmarks.place.together import together
from benchmarks.place.windows import several_workloads
from costmodel.experts.expert_load import read_loads, skewed_load
from solver.experts import place_layers
from solver.experts.nodes.affinity import balanced_start, crossings, group_by_affinity
from topology.catalogue import data_dir

SIZES = ((32, 32), (64, 64), (72, 32), (32, 0), (64, 0), (96, 32), (144, 32), (160, 64), (320, 64))


def one_workload(names, windows, workers):
    print("\nOne workload: chips + spare slots, mean imbalance over layers")
    header = f"{'workload':<24}{'size':>9}{'ours':>9}{'EPLB':>9}{'bound':>9}{'gap mean':>10}{'gap max':>9}"
    print(header + f"{'> 0.1%':>8}{'worse':>7}{'s':>8}{'fast':>9}{'fast ms':>9}")
    for name, loads in zip(names, windows, strict=True):
        for chips, spare in SIZES:
            slots = loads.shape[1] + spare
            if slots % chips:
                continue
            theirs = even_loads(loads, eplb(loads, slots, chips), chips)
            theirs = theirs.max(axis=1) / theirs.mean(axis=1)
            place_layers(loads, [slots // chips] * chips, effort="fast")
            start = time.perf_counter()
            fast = place_layers(loads, [slots // chips] * chips, effort="fast")
            middle = time.perf_counter()
            ours = place_layers(loads, [slots // chips] * chips, workers=workers)
            wall = time.perf_counter() - middle
            ratio = ours.max_load * chips
            print(
                f"{name:<24}{f'{chips}+{spare}':>9}{ratio.mean():>9.4f}{theirs.mean():>9.4f}"
                f"{(ours.bound * chips).mean():>9.4f}{ours.gap.mean():>10.3%}{ours.gap.max():>9.3%}"
                f"{int((ours.gap > 1e-3).sum()):>8}{int((ratio > theirs * (1 + 1e-9)).sum()):>7}{wall:>8.2f}"
                f"{(fast.max_load * chips).mean():>9.4f}{(middle - start) * 1e3:>9.0f}",
                flush=True,
            )


def affinity():
    print("\nAffinity: OLMoE, share of layer-to-layer transitions that leave their domain")
    with np.load(data_dir("loads") / "transitions" / "olmoe-1b-7b.npz") as archive:
        transitions = {name: archive[name].astype(float) for name in archive.files}
    loads = read_loads(data_dir("loads") / "olmoe-1b-7b.npz").total
    rng = np.random.default_rng(0)
    for domains in (2, 4, 8):
        for name in ("c4", "github"):
            pairs, held_out = transitions[name], transitions["wikipedia"]
            ours = group_by_affinity(pairs, loads, domains)
            random = np.stack(
                [rng.permutation(np.repeat(np.arange(domains), 64 // domains)) for _ in loads]
            )
            table = eplb(loads, 64, domains)
            theirs = np.empty_like(table)
            np.put_along_axis(
                theirs, table, np.repeat(np.arange(domains), 64 // domains)[None], axis=1
            )
            balanced = np.stack([balanced_start(load, domains, rng) for load in loads])
            rows = {"ours": ours, "random": random, "EPLB": theirs, "balanced": balanced}
            cut = {label: crossings(pairs, row) for label, row in rows.items()}
            text = "  ".join(f"{label} {share:.3f}" for label, share in cut.items())
            saved = ", ".join(
                f"{1 - cut['ours'] / cut[label]:.1%} of {label}'s" for label in ("random", "EPLB")
            )
            print(
                f"{domains} domains, trained on {name}: {text}  saves {saved}  ours on wikipedia {crossings(held_out, ours):.3f}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("loads", nargs="?")
    parser.add_argument("--dense-layers", type=int)
    parser.add_argument("--only", default="one,several,left-out,nodes,together,affinity")
    parser.add_argument("--workloads", type=int, default=2, help="workloads of the first table")
    parser.add_argument("--train", type=int, default=4)
    parser.add_argument("--splits", default="published", help="published, all, or n: every n-th")
    parser.add_argument("--layer-stride", type=int, default=1, help="every n-th layer of them")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--nodes", default="4,8", help="numbers of nodes")
    parser.add_argument("--node-workloads", type=int, default=1)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.splits not in ("published", "all") and not options.splits.strip("0").isdigit():
        parser.error("--splits: published, all, or a whole number above 0")
    if options.loads is None:
        base = skewed_load(58, 256, seed=0)
        noise = np.random.default_rng(1).lognormal(0, 0.25, (6, *base.shape))
        names, windows = [f"generated {index}" for index in range(6)], base * noise
    else:
        recorded = read_loads(options.loads, dense_layers=options.dense_layers)
        names, windows = list(recorded.names), recorded.windows
    only = set(options.only.split(","))
    if "one" in only:
        pick = (
            np.linspace(0, len(names) - 1, min(options.workloads, len(names))).round().astype(int)
        )
        one_workload([names[i] for i in pick], windows[pick], options.workers)
    if "several" in only and len(windows) > options.train:
        several_workloads(
            names, windows, options.train, options.splits, options.layer_stride, options.workers
        )
    if "left-out" in only and len(windows) > 2:
        left_out(names, windows, options.workers)
    if "nodes" in only:
        sizes = [size for size in NODE_SIZES if str(size[0]) in options.nodes.split(",")]
        drawn_nodes(names[0], windows[0], sizes=sizes)
        for name, loads in list(zip(names, windows, strict=True))[: options.node_workloads]:
            nodes_and_traffic(name, loads, options.plot, sizes)
    if "together" in only:
        together()
    if "affinity" in only:
        affinity()


if __name__ == "__main__":
    main()
