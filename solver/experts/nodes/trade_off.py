"""Balance weighed against copies of tokens to other nodes: points of the trade-off, and the best for each layer."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from costmodel.experts.coactivation import CoActivation, together_copies
from costmodel.experts.dispatch import chip_loads, imbalance
from costmodel.experts.fanout import remote_copies
from solver.experts.nodes.copies import CopyTraffic
from solver.experts.request import Floats, Found, Ints, PlaceOptions

#: Worth of a remote copy against a mean node's load, for the points of the trade-off curve.
PRICES = (0.0, 0.15, 0.25, 0.5, 1.0, 2.0)


#: The same where experts used together are known: homes then follow the price too.
TOGETHER_PRICES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


#: Worths of a copy, in balanced layer times, at which the points are chosen layer by layer for the curve.
WORTHS = tuple(float(worth) for worth in np.geomspace(1e-3, 30.0, 40))


def over_nodes(
    total: Floats,
    options: PlaceOptions,
    flat: Found,
    together: CoActivation | None = None,
    *,
    ends: float | None = None,
) -> Found:
    """The point of the trade-off between balance and traffic that costs each layer least.

    Points: groups (or experts used ``together``) at home, spare slots abroad at several worths of a
    copy, and the placement that ignores nodes. Cost of a layer: ``imbalance + copy_cost * copies``. With tokens held
    out the choice rests on the others, and the copies of the points on those held out. After ``ends``, on the monotonic clock,
    no point is begun but the first over nodes, and one that is begun is only made whole.
    """
    from solver.experts.nodes.grouped import place_on_nodes

    per_node = options.gpus_per_node or options.gpus
    tables = [flat.physical_to_logical]
    for abroad, traffic, home in traffics(total, options, together, ends):
        if ends is not None and len(tables) > 1 and time.monotonic() > ends:
            break
        tables.append(
            place_on_nodes(
                total,
                options.gpus,
                options.slots,
                chips_per_node=per_node,
                groups=options.groups if together is None else options.gpus // per_node,
                abroad=abroad,
                routing=traffic,
                home=home,
                effort=options.effort,
                seed=options.seed,
                workers=options.workers,
                deadline=ends,
            ).physical_to_logical
        )
    balance = np.stack([imbalance(loads_of(table, total, options)) for table in tables])
    copies = np.stack([node_copies(table, total, options, together, False) for table in tables])
    chosen = [(balance + worth * copies).argmin(axis=0) for worth in (options.copy_cost, *WORTHS)]
    if together is not None and together.held_out is not None:
        copies = np.stack([node_copies(table, total, options, together) for table in tables])
    rows = np.arange(len(total))
    by_layer = [
        (float(balance[best, rows].mean()), float(copies[best, rows].mean())) for best in chosen[1:]
    ]
    return Found(
        np.stack(tables)[chosen[0], rows],
        flat.bound,
        trade_off=list(
            zip(balance.mean(axis=1).tolist(), copies.mean(axis=1).tolist(), strict=True)
        ),
        by_layer=list(dict.fromkeys(by_layer)),
    )


def traffics(
    total: Floats,
    options: PlaceOptions,
    together: CoActivation | None,
    ends: float | None = None,
) -> Iterator[tuple[int | None, CopyTraffic, Ints | None]]:
    """Points to try: spare slots abroad (none, or all), worth of a copy, homes if not by groups."""
    if together is None:
        from solver.experts.nodes.copies import Routing

        top_k = options.experts_per_token(total.shape[1])
        for abroad, price in ((0, 0.0), *((None, price) for price in PRICES)):
            yield abroad, Routing(top_k, options.top_groups, price), None
        return
    from solver.experts.nodes.together import Together, homes

    nodes = options.gpus // (options.gpus_per_node or options.gpus)
    local_first = options.dispatch == "sglang-static"
    shares, home = total / total.sum(axis=1, keepdims=True), None
    for price in TOGETHER_PRICES[:: 2 if options.effort == "fast" else 1]:
        known = Together(together.pairs, together.top_k, price, local_first)
        home = homes(
            shares, nodes, known,
            seed=options.seed, start=home, workers=options.workers, deadline=ends,
        )  # fmt: skip
        for abroad in (0, None):
            yield abroad, known, home


def loads_of(table: Ints, total: Floats, options: PlaceOptions) -> Floats:
    """Share of each layer's load on each chip, equally many slots on all."""
    return chip_loads(
        table,
        total,
        options.slots // options.gpus,
        dispatch=options.dispatch,
        chips_per_node=options.gpus_per_node,
    )


def node_copies(
    table: Ints,
    total: Floats,
    options: PlaceOptions,
    together: CoActivation | None = None,
    held_out: bool = True,
) -> Floats:
    """Expected copies of a token to remote nodes, per layer (zero where all GPUs are one node).

    Counted on the tokens held out (or searched), where there are some.
    """
    if options.gpus_per_node is None:
        return np.zeros(table.shape[0])
    node = np.repeat(np.arange(options.gpus), options.slots_per_chip()) // options.gpus_per_node
    local_first = options.dispatch == "sglang-static"
    if together is not None:
        return together_copies(
            table,
            together,
            node,
            local_first=local_first,
            held_out=held_out and together.held_out is not None,
        ).value
    return remote_copies(
        table,
        total,
        node,
        top_k=options.experts_per_token(total.shape[1]),
        num_groups=options.groups,
        top_groups=options.top_groups,
        local_first=local_first,
    )
