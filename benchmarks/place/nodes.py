"""Placements over nodes: even chips against copies of tokens to other nodes, EPLB's beside ours."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.baselines.eplb import eplb
from costmodel.experts.dispatch import chip_loads, imbalance, static_table
from costmodel.experts.fanout import remote_copies
from rackfit.figures.chart import Chart, Series
from rackfit.figures.drawing import chart_svg
from solver.experts import place_layers
from solver.experts.nodes.copies import Routing
from solver.experts.nodes.grouped import place_on_nodes

#: Nodes, chips and spare slots; worths of a copy; copies allowed over EPLB's hierarchical placement.
SIZES = ((4, 32, 32), (8, 64, 64))
PRICES = (0.0, 0.15, 0.25, 0.5, 1.0, 2.0)
ALLOWED = 0.01


def judged(table, loads, chips, count):
    """Imbalance and remote copies per layer, SGLang's static dispatch, groups of DeepSeek-V3."""
    slots = table.shape[1]
    load = chip_loads(
        table, loads, slots // chips, dispatch="sglang-static", chips_per_node=chips // count
    )
    node = np.arange(slots) // (slots // count)
    copies = remote_copies(
        table, loads, node, top_k=8, num_groups=8, top_groups=4, local_first=True
    )
    return imbalance(load), copies


def nodes_and_traffic(name, loads, plot, sizes=SIZES):
    print(
        f"\nNodes: {name}, 8 groups, 4 per token, local-first dispatch, imbalance and remote copies per token"
    )
    for count, chips, spare in sizes:
        slots = loads.shape[1] + spare
        theirs = {
            "EPLB hierarchical": eplb(loads, slots, chips, 8, count),
            "EPLB global": eplb(loads, slots, chips),
            "ours, nodes ignored": place_layers(
                loads, [slots // chips] * chips
            ).physical_to_logical,
        }
        start = time.perf_counter()
        ours = {
            f"ours, copy worth {price:g}": place_on_nodes(
                loads, chips, slots, chips_per_node=chips // count, groups=8,
                routing=Routing(8, 4, price),
            ).physical_to_logical
            for price in PRICES
        }  # fmt: skip
        ours["ours, groups at home"] = place_on_nodes(
            loads, chips, slots, chips_per_node=chips // count, groups=8, abroad=0
        ).physical_to_logical
        wall = time.perf_counter() - start
        points = {
            label: judged(table, loads, chips, count) for label, table in (theirs | ours).items()
        }
        base = points["EPLB hierarchical"][1].mean()
        mixed = mix([points[label] for label in ours], base * (1 + ALLOWED))
        points[f"ours by layer, <= {ALLOWED:+.0%}"] = mixed
        for label, (balance, copies) in points.items():
            print(
                f"{count} nodes  {label:<28}{balance.mean():>8.4f}{copies.mean():>9.4f}{copies.mean() / base - 1:>+9.2%}",
                flush=True,
            )
        print(f"{count} nodes  {wall / len(ours):.1f} s per placement of ours")
        if plot is not None:
            draw(
                points,
                plot / f"nodes-{count}-{name}.svg",
                f"{name}: {count} nodes, {chips}+{spare}",
            )


def mix(points, most):
    """Per layer the point that costs least, copies weighed so that their mean is at most ``most``."""
    balance, copies = (np.stack([point[axis] for point in points]) for axis in (0, 1))
    rows = np.arange(balance.shape[1])
    low, high = 0.0, 100.0
    for _ in range(50):
        worth = (low + high) / 2
        best = (balance + worth * copies).argmin(axis=0)
        low, high = (low, worth) if copies[best, rows].mean() <= most else (worth, high)
    best = (balance + high * copies).argmin(axis=0)
    return balance[best, rows], copies[best, rows]


def draw(points, path, title):
    series = {"ours": [], "EPLB": []}
    for label, (balance, copies) in points.items():
        if "nodes ignored" not in label:
            series[label[:4]].append((float(copies.mean()), float(balance.mean())))
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = [Series(name, sorted(found)) for name, found in series.items()]
    across, up = "copies to other nodes per token", "busiest over mean chip"
    path.write_text(chart_svg(Chart(title, across, up, shown)))


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


def drawn_nodes(name, loads, layers=10, tokens=4000, sizes=SIZES):
    print(
        f"\nNodes, simulated: {name}, {layers} layers x {tokens} group-limited tokens, static dispatch"
    )
    rng = np.random.default_rng(0)
    pick = np.linspace(0, len(loads) - 1, layers).astype(int)
    picks = [drawn_tokens(loads[layer] / loads[layer].sum(), tokens, rng) for layer in pick]
    drawn = np.stack([np.bincount(p.ravel(), minlength=loads.shape[1]) for p in picks]).astype(
        float
    )
    for count, chips, spare in sizes:
        slots, per_node = loads.shape[1] + spare, chips // count
        points = {
            "EPLB hierarchical": eplb(drawn, slots, chips, 8, count),
            "EPLB global": eplb(drawn, slots, chips),
        }
        for price in PRICES:
            points[f"ours, copy worth {price:g}"] = place_on_nodes(
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
                f"{count} nodes  {label:<28}{imbalance(load).mean():>8.4f}{copies:>9.4f}{copies / base - 1:>+9.2%}",
                flush=True,
            )
