r"""Spare slots spent on replicas outside an expert's home node: evener nodes, fewer copies of tokens.

One step gives an expert replicas on one further node, on two, or on all that lack it: the last
makes every pick of that expert local, so a hot expert on all nodes both relieves its home and
saves copies, which no single further replica does. The step chosen gains most per slot on

    sum over nodes n of  exp(beta (load_n - 1)) / beta  +  price * copies of a token to other nodes
    + sum over replicas of  exp(beta (piece - 1)) / (beta * chips of a node)

with loads in units of the mean node and pieces in units of the mean chip: a piece above that
decides its chip, however even the nodes are.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from solver.experts.copies import Fanout, Routing
from solver.experts.slots import Floats, Ints

#: Weight of the busiest nodes against the others.
SHARPNESS = 4.0
#: Hottest pieces looked at in a step.
HOTTEST = 64
#: Most nodes for which replicas on two further nodes at once are tried.
FEW_NODES = 4


def spend_abroad(
    shares: Floats,
    home: Ints,
    nodes: int,
    chips: int,
    groups: int,
    away: int,
    routing: Routing | None = None,
) -> Ints:
    """Replicas by node ``[layers, experts, nodes]`` (0 or 1): home, and ``away`` foreign ones a node.

    ``chips`` of each node, ``shares [layers, experts]`` and ``home [layers, experts]``; without ``routing`` only loads count.
    """
    return np.stack(
        [
            _spend_layer(share, own, nodes, chips, groups, away, routing)
            for share, own in zip(shares, home, strict=True)
        ]
    )


def steps(nodes: int) -> NDArray[np.bool_]:
    """Sets of nodes that one step adds, ``[steps, nodes]``: single ones, pairs if few, all."""
    sizes = [1, 2] if nodes <= FEW_NODES else [1]
    chosen = [group for size in sizes for group in combinations(range(nodes), size)]
    found = np.zeros((len(chosen) + 1, nodes), dtype=bool)
    for row, group in enumerate(chosen):
        found[row, list(group)] = True
    found[-1] = True
    return found


def _spend_layer(
    share: Floats,
    home: Ints,
    nodes: int,
    chips: int,
    groups: int,
    away: int,
    routing: Routing | None,
) -> Ints:
    held = home[:, None] == np.arange(nodes)
    room = np.full(nodes, away)
    price = 0.0 if routing is None else routing.price
    kinds = steps(nodes) if price > 0 else np.eye(nodes, dtype=bool)
    fan = None
    if routing is not None and price > 0:
        fan = Fanout(share, held.astype(np.int64), routing, groups)
    unit = share * nodes
    while room.any():
        piece = unit / held.sum(axis=1)
        hot = np.argsort(-piece, kind="stable")[:HOTTEST]
        possible = _possible(held[hot], kinds, room)
        if not possible.any():
            hot = np.arange(len(share))
            possible = _possible(held, kinds, room)
            if not possible.any():
                break
        after = held[hot, None] | kinds
        load = piece @ held
        count = after.sum(axis=2)
        smaller = unit[hot, None] / count
        now = smaller[..., None] * after
        now += load - (piece[hot, None] * held[hot])[:, None]
        gain = (pressure(now) - pressure(load)).sum(axis=2)
        before = held[hot].sum(axis=1)[:, None]
        gain += (
            count * pressure(smaller * chips) - before * pressure(piece[hot, None] * chips)
        ) / chips
        if fan is not None:
            gain += price * fan.change(hot, after)
        score = gain / np.maximum(count - before, 1)
        score -= 1e-3 * piece[hot, None]
        who, kind = np.unravel_index(int(np.where(possible, score, np.inf).argmin()), score.shape)
        expert = hot[who]
        room -= after[who, kind] & ~held[expert]
        held[expert] = after[who, kind]
        if fan is not None:
            fan.set(int(expert), held[expert])
    replicas: Ints = held.astype(np.int64)
    return replicas


def pressure(load: Floats) -> Floats:
    """How far a load, in means, is from harmless."""
    value: Floats = np.exp(SHARPNESS * np.minimum(load - 1, 20.0)) / SHARPNESS
    return value


def _possible(held: NDArray[np.bool_], kinds: NDArray[np.bool_], room: Ints) -> NDArray[np.bool_]:
    """Which steps ``[experts, steps]`` add something new only where there is room."""
    new = kinds[None] & ~held[:, None]
    fits = (new <= (room > 0)).all(axis=2) & new.any(axis=2)
    overlap = (kinds[None] & held[:, None]).any(axis=2)
    return np.asarray(fits & (~overlap | kinds.all(axis=1)))
