"""Expert placement measured in one run: ours, EPLB, FlashLB-like, bound, time.

    python benchmarks/place.py [LOADS] [--dense-layers N] [--only one,several,nodes,affinity] [--plot DIR]

``LOADS`` is any file that ``rackfit place`` reads, for example recorded DeepSeek-V3 counts (61 rows,
3 dense); without it, generated loads matched to the published skew are used. Times are wall
seconds of one process and depend on the machine; imbalance is busiest over mean chip.
"""

from __future__ import annotations

import argparse
import os
import time
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.baselines.eplb import chip_loads as even_loads
from benchmarks.baselines.eplb import eplb
from benchmarks.baselines.flashlb import flashlb
from costmodel.dispatch import chip_loads, imbalance, static_table
from costmodel.expert_load import read_loads, skewed_load
from costmodel.fanout import remote_copies
from solver.experts import place_layers, place_windows
from solver.experts.affinity import balanced_start, crossings, group_by_affinity
from solver.experts.copies import Routing
from solver.experts.nodes import place_on_nodes
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


def several_workloads(windows, train, stride):
    print(f"\nSeveral workloads: trained on {train} of {len(windows)}, every split, seen / unseen")
    splits = list(combinations(range(len(windows)), train))[::stride]
    shares = windows / windows.sum(axis=2, keepdims=True)
    for chips, spare in ((72, 32), (144, 32), (64, 64)):
        slots = windows.shape[2] + spare
        if slots % chips:
            continue
        found = {"ours": [], "EPLB(mean)": [], "FlashLB-like": []}
        bound, wall = [], 0.0
        for split in splits:
            seen, unseen = shares[list(split)], np.delete(shares, split, axis=0)
            start = time.perf_counter()
            ours = place_windows(seen, [slots // chips] * chips)
            wall += time.perf_counter() - start
            bound.append(float(ours.bound.mean()) * chips)
            tables = {
                "ours": ours.physical_to_logical,
                "EPLB(mean)": eplb(seen.mean(axis=0), slots, chips),
                "FlashLB-like": flashlb(seen, slots, chips),
            }
            for name, table in tables.items():
                found[name].append(
                    [
                        np.mean([imbalance(even_loads(w, table, chips)).mean() for w in part])
                        for part in (seen, unseen)
                    ]
                )
        text = "  ".join(
            f"{name} {np.mean(values, axis=0)[0]:.4f} / {np.mean(values, axis=0)[1]:.4f}"
            for name, values in found.items()
        )
        spread = np.array(found["ours"])[:, 1]
        print(
            f"{chips}+{spare}: {text}  bound (seen) {np.mean(bound):.4f}  ours unseen by split "
            f"{spread.min():.3f}..{spread.max():.3f}  {wall / len(splits):.1f} s per placement",
            flush=True,
        )


def nodes_and_traffic(name, loads, plot):
    print(
        f"\nNodes: {name}, 8 groups, 4 per token, local-first dispatch, imbalance and remote copies per token"
    )
    for count, chips, spare in ((4, 32, 32), (8, 64, 64)):
        slots, per_node = loads.shape[1] + spare, chips // count
        node = np.arange(slots) // (slots // count)
        points = {
            "EPLB hierarchical": eplb(loads, slots, chips, 8, count),
            "EPLB global": eplb(loads, slots, chips),
            "ours global": place_layers(loads, [slots // chips] * chips).physical_to_logical,
        }
        spare_per_node = spare // count
        for abroad in sorted({0, spare_per_node // 4, spare_per_node // 2, spare_per_node}):
            for price in (0.0, 0.5, 2.0) if abroad == spare_per_node else (0.0,):
                points[f"groups at home, {abroad} abroad, price {price:g}"] = place_on_nodes(
                    loads, chips, slots, chips_per_node=per_node, groups=8, abroad=abroad,
                    routing=Routing(8, 4, price),
                ).physical_to_logical  # fmt: skip
        curve = []
        for label, table in points.items():
            load = chip_loads(
                table, loads, slots // chips, dispatch="sglang-static", chips_per_node=per_node
            )
            copies = remote_copies(
                table, loads, node, top_k=8, num_groups=8, top_groups=4, local_first=True
            )
            curve.append((label, float(imbalance(load).mean()), float(copies.mean())))
        base = curve[0][2]
        for label, balance, copies in curve:
            print(
                f"{count} nodes  {label:<40}{balance:>8.4f}{copies:>9.4f}{copies / base - 1:>+9.2%}",
                flush=True,
            )
        if plot is not None:
            draw(curve, plot / f"nodes-{count}.svg", f"{count} nodes, {chips}+{spare}")


def drawn_tokens(share, tokens, rng):
    """Experts of group-limited tokens ``[tokens, 8]``: Gumbel scores, 4 of 8 groups by their two best."""
    score = np.log(share) + rng.gumbel(size=(tokens, len(share)))
    groups = np.sort(score.reshape(tokens, 8, -1), axis=2)[:, :, -2:].sum(axis=2)
    kept = np.argsort(-groups, axis=1)[:, :4]
    mask = np.full((tokens, 8), -np.inf)
    np.put_along_axis(mask, kept, 0.0, axis=1)
    score = score + np.repeat(mask, len(share) // 8, axis=1)
    return np.argsort(-score, axis=1)[:, :8]


def counted_copies(row, picks, slots_per_chip, chips_per_node):
    """Remote nodes per token under SGLang's static table, tokens from every chip alike."""
    chip = np.arange(len(row)) // slots_per_chip
    table = static_table(row[None], int(row.max()) + 1, chip, chips_per_node)[:, 0]
    node = chip // chips_per_node
    remote = []
    for source in range(int(chip[-1]) + 1):
        hit = np.zeros((len(picks), int(node[-1]) + 1), dtype=bool)
        hit[np.arange(len(picks))[:, None], node[table[source][picks]]] = True
        hit[:, source // chips_per_node] = False
        remote.append(hit.sum(axis=1).mean())
    return float(np.mean(remote))


def drawn_nodes(name, loads, layers=10, tokens=4000):
    print(
        f"\nNodes, simulated: {name}, {layers} layers x {tokens} group-limited tokens, static dispatch"
    )
    rng = np.random.default_rng(0)
    pick = np.linspace(0, len(loads) - 1, layers).astype(int)
    picks = [drawn_tokens(loads[layer] / loads[layer].sum(), tokens, rng) for layer in pick]
    drawn = np.stack([np.bincount(p.ravel(), minlength=loads.shape[1]) for p in picks]).astype(
        float
    )
    for count, chips, spare in ((4, 32, 32), (8, 64, 64)):
        slots, per_node = loads.shape[1] + spare, chips // count
        points = {
            "EPLB hierarchical": eplb(drawn, slots, chips, 8, count),
            "EPLB global": eplb(drawn, slots, chips),
        }
        for price in (0.0, 0.5, 1.0, 2.0):
            points[f"ours, price {price:g}"] = place_on_nodes(
                drawn, chips, slots, chips_per_node=per_node, groups=8, routing=Routing(8, 4, price)
            ).physical_to_logical
        base = None
        for label, table in points.items():
            load = chip_loads(
                table, drawn, slots // chips, dispatch="sglang-static", chips_per_node=per_node
            )
            copies = np.mean(
                [
                    counted_copies(row, p, slots // chips, per_node)
                    for row, p in zip(table, picks, strict=True)
                ]
            )
            base = copies if base is None else base
            print(
                f"{count} nodes  {label:<24}{imbalance(load).mean():>8.4f}{copies:>9.4f}{copies / base - 1:>+9.2%}",
                flush=True,
            )


def draw(curve, path, title):
    """The trade-off as a small SVG, without a plotting library."""
    balance, copies = (np.array([point[axis] for point in curve]) for axis in (1, 2))
    x = 70 + 520 * (copies - copies.min()) / max(float(np.ptp(copies)), 1e-9)
    y = 330 - 280 * (balance - balance.min()) / max(float(np.ptp(balance)), 1e-9)
    marks = "".join(
        f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4"/><text x="{a + 7:.1f}" y="{b - 5:.1f}" font-size="9">{label}</text>'
        for (label, _, _), a, b in zip(curve, x, y, strict=True)
    )
    axes = (
        f'<text x="70" y="25" font-size="13">{title}: busiest/mean chip against remote copies per token</text>'
        f'<text x="70" y="370" font-size="10">{copies.min():.3f} copies</text>'
        f'<text x="540" y="370" font-size="10">{copies.max():.3f}</text>'
        f'<text x="10" y="335" font-size="10">{balance.min():.3f}</text>'
        f'<text x="10" y="55" font-size="10">{balance.max():.3f}</text>'
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="860" height="385" font-family="sans-serif">{axes}{marks}</svg>\n'
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
            text = "  ".join(f"{label} {crossings(pairs, row):.3f}" for label, row in rows.items())
            print(
                f"{domains} domains, trained on {name}: {text}  ours on wikipedia {crossings(held_out, ours):.3f}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("loads", nargs="?")
    parser.add_argument("--dense-layers", type=int)
    parser.add_argument("--only", default="one,several,nodes,affinity")
    parser.add_argument("--workloads", type=int, default=2, help="workloads of the first table")
    parser.add_argument("--train", type=int, default=4)
    parser.add_argument("--stride", type=int, default=1, help="every n-th split")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
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
        several_workloads(windows, options.train, options.stride)
    if "nodes" in only:
        drawn_nodes(names[0], windows[0])
        nodes_and_traffic(names[0], windows[0], options.plot)
    if "affinity" in only:
        affinity()


if __name__ == "__main__":
    main()
