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

import time
from itertools import combinations

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from solver.experts.nodes.copies import CopyTraffic, Ledger
from solver.experts.slots import Floats, Ints

#: Weight of the busiest nodes against the others.
SHARPNESS = 4.0
#: Hottest pieces looked at in a step.
HOTTEST = 64
#: Layers worked on together: their arrays fit a processor's cache.
PART = 8
#: Most nodes for which replicas on two further nodes at once are tried.
FEW_NODES = 4


def spend_abroad(
    shares: Floats,
    home: Ints,
    nodes: int,
    chips: int,
    groups: int,
    away: int,
    routing: CopyTraffic | None = None,
    *,
    workers: int = 1,
    deadline: float | None = None,
) -> Ints:
    """Replicas by node ``[layers, experts, nodes]`` (0 or 1): home, and ``away`` foreign ones a node.

    ``chips`` of each node, ``shares [layers, experts]`` and ``home [layers, experts]``; without ``routing``
    only loads count. Layers are independent: ``workers`` parts of them run at once. After ``deadline`` (of ``time.monotonic``)
    slots that are left stay so.
    """

    def work(part: slice) -> Ints:
        spender = Spender(shares[part], home[part], nodes, chips, away)
        if routing is not None and routing.price > 0:
            held = spender.held.astype(np.int64)
            spender.count(routing.ledger(shares[part], held, groups, part), routing.price)
        spender.run(deadline)
        spent: Ints = spender.held.astype(np.int64)
        return spent

    parts = [slice(start, start + PART) for start in range(0, len(shares), PART)]
    jobs = Parallel(n_jobs=max(workers, 1), backend="threading")
    return np.concatenate(jobs(delayed(work)(part) for part in parts))


def steps(nodes: int) -> NDArray[np.bool_]:
    """Sets of nodes that one step adds, ``[steps, nodes]``: single ones, pairs if few, all."""
    sizes = [1, 2] if nodes <= FEW_NODES else [1]
    chosen = [group for size in sizes for group in combinations(range(nodes), size)]
    found = np.zeros((len(chosen) + 1, nodes), dtype=bool)
    for row, group in enumerate(chosen):
        found[row, list(group)] = True
    found[-1] = True
    return found


class Spender:
    """Layers whose spare slots are spent step by step, all at once."""

    def __init__(self, shares: Floats, home: Ints, nodes: int, chips: int, away: int):
        self.chips = chips
        self.held = home[..., None] == np.arange(nodes)
        self.room = np.full((len(shares), nodes), away)
        self.price = 0.0
        self.kinds = np.eye(nodes, dtype=bool)
        self.fan: Ledger | None = None
        self.unit = shares * nodes

    def count(self, ledger: Ledger, price: float) -> None:
        """Let copies to other nodes count, and replicas go to several nodes in one step."""
        self.fan, self.price = ledger, price
        self.kinds = steps(self.held.shape[2])

    def run(self, deadline: float | None = None) -> None:
        """Spend until no layer has a step left, or until ``deadline``."""
        active = np.flatnonzero(self.room.any(axis=1))
        while active.size and (deadline is None or time.monotonic() < deadline):
            stuck = self.step(active, HOTTEST)
            if stuck.size:
                done = self.step(stuck, self.unit.shape[1])
                active = np.setdiff1d(active, done)
            active = active[self.room[active].any(axis=1)]

    def step(self, layers: Ints, hottest: int) -> Ints:
        """One step in each of ``layers`` among the ``hottest`` pieces; the layers that have none."""
        piece = self.unit[layers] / self.held[layers].sum(axis=2)
        hot = np.argsort(-piece, axis=1, kind="stable")[:, :hottest]
        held = self.held[layers[:, None], hot]
        possible, new = _possible(held, self.kinds, self.room[layers])
        able = possible.any(axis=(1, 2))
        stuck = layers[~able]
        if stuck.size:
            layers, possible, new = layers[able], possible[able], new[able]
            piece, hot, held = piece[able], hot[able], held[able]
        if not layers.size:
            return stuck
        after = held[:, :, None] | self.kinds
        load = (piece[:, None] @ self.held[layers])[:, 0]
        before = held.sum(axis=2)[..., None]
        count = before + new
        size = np.take_along_axis(piece, hot, axis=1)
        smaller = np.take_along_axis(self.unit[layers], hot, axis=1)[..., None] / count
        gain = np.zeros(count.shape)
        for node in range(self.room.shape[1]):  # a sum over so short an axis would be slow
            less = load[:, node, None] - size * held[:, :, node]
            gain += pressure(less[..., None] + smaller * after[..., node])
        gain -= pressure(load).sum(axis=1)[:, None, None]
        alone = pressure(size * self.chips)[..., None]
        gain += (count * pressure(smaller * self.chips) - before * alone) / self.chips
        if self.fan is not None:
            gain += self.price * self.fan.change(layers, hot, after)
        score = gain / np.maximum(new, 1) - 1e-3 * size[..., None]
        best = np.where(possible, score, np.inf).reshape(len(layers), -1).argmin(axis=1)
        rows = np.arange(len(layers))
        who, kind = np.divmod(best, len(self.kinds))
        expert, chosen = hot[rows, who], after[rows, who, kind]
        self.room[layers] -= chosen & ~held[rows, who]
        self.held[layers, expert] = chosen
        if self.fan is not None:
            self.fan.set(layers, expert, chosen)
        return stuck


def pressure(load: Floats) -> Floats:
    """How far a load, in means, is from harmless."""
    value: Floats = np.exp(SHARPNESS * np.minimum(load - 1, 20.0)) / SHARPNESS
    return value


def _possible(
    held: NDArray[np.bool_], kinds: NDArray[np.bool_], room: Ints
) -> tuple[NDArray[np.bool_], Ints]:
    """Which steps ``[layers, experts, steps]`` add something new only where there is room, and to how many nodes."""
    each, ways = kinds.sum(axis=1), kinds.T.astype(np.float64)
    overlap = (held @ ways).astype(np.int64)
    new = each - overlap
    full = (~held & (room <= 0)[:, None]) @ ways
    alike = (overlap == 0) | (each == kinds.shape[1])
    return (full < 0.5) & (new > 0) & alike, new
