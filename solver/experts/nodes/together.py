r"""Experts that tokens use together, put on one node: fewer copies of tokens cross the network.

Home nodes hold equally many experts each. They are found by exchanging two experts of different
nodes while that lowers

    sum over nodes n of  exp(beta (load_n - 1)) / beta  +  price * P(a token has an expert on n) (N - 1) / N

with loads in units of the mean node and the probability as ``costmodel.experts.coactivation`` estimates it from pairs.
The exchange tried is the one that gains most at the present slopes of that estimate.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from costmodel.experts.coactivation import touch_estimate
from solver.experts.nodes.abroad import SHARPNESS, pressure
from solver.experts.nodes.affinity import balanced_start
from solver.experts.nodes.copies import Fanout, Ledger
from solver.experts.slots import Floats, Ints

#: Most exchanges from each start, exchanges compared exactly before one is made.
EXCHANGES, COMPARED = 400, 24


@dataclass(frozen=True, slots=True)
class Together:
    """Pair shares ``[layers, experts, experts]`` (single ones on the diagonal), and the worth of a copy.

    ``local_first``: an expert with a replica on the token's node is served there, else evenly.
    """

    pairs: Floats
    top_k: int
    price: float
    local_first: bool = True

    def ledger(self, shares: Floats, held: Ints, groups: int, part: slice) -> Ledger:
        """Copies as the pairs of the layers ``part`` say."""
        return PairFanout(self.pairs[part], held, self.top_k, self.local_first)


class PairFanout:
    """Copies of a token to remote nodes from pairs, kept up to date while replicas are added.

    ``pairs [layers, experts, experts]``; ``held [layers, experts, nodes]``, 0 or 1.
    """

    def __init__(self, pairs: Floats, held: Ints, top_k: int, local_first: bool = True):
        self.top_k, self.local_first = top_k, local_first
        self.chance: Floats = np.einsum("lee->le", pairs).copy()
        self.apart = pairs - self.chance[:, :, None] * np.eye(pairs.shape[1])
        self.held = held.astype(np.float64)
        self.nodes = held.shape[2]
        layers, experts = self.chance.shape
        self.away = self.fractions(self.held).reshape(layers, experts, -1)
        self.mean = (self.chance[:, None] @ self.away)[:, 0]
        self.beside = self.apart @ self.away

    def fractions(self, held: Floats) -> Floats:
        """Fraction ``[..., from, to]`` of tokens served on another node."""
        if self.local_first:
            return Fanout.fractions(held)
        share = held / held.sum(axis=-1, keepdims=True)
        away: Floats = share[..., None, :] * (1 - np.eye(self.nodes))
        return away

    def both(self, layers: Ints) -> Floats:
        """Expected pairs of a token's experts ``[layers, from * to]`` served on each remote node."""
        pairs: Floats = 0.5 * (self.away[layers] * self.beside[layers]).sum(axis=1)
        return pairs

    def change(self, layers: Ints, experts: Ints, held: NDArray[np.bool_]) -> Floats:
        """Change of the expected copies ``[layers, experts, ways]`` if one of ``experts [layers, experts]``
        lay on the nodes of one of the ways ``held [layers, experts, ways, nodes]``.
        """
        rows = layers[:, None]
        after = self.fractions(held.astype(np.float64)).reshape(*held.shape[:3], -1)
        moved = after - self.away[rows, experts][:, :, None]
        mean = self.mean[layers][:, None, None]
        both = self.both(layers)[:, None, None]
        chance = self.chance[rows, experts][:, :, None, None]
        pulled = moved * self.beside[rows, experts][:, :, None]
        new = touch_estimate(mean + chance * moved, both + pulled, self.top_k)
        old = touch_estimate(mean, both, self.top_k)
        change: Floats = (new.sum(axis=3) - old.sum(axis=3)) / self.nodes
        return change

    def set(self, layers: Ints, experts: Ints, held: NDArray[np.bool_]) -> None:
        """Put one of ``experts [layers]`` of each layer on the nodes ``held [layers, nodes]``."""
        after = self.fractions(held.astype(np.float64)).reshape(len(layers), -1)
        moved = after - self.away[layers, experts]
        self.held[layers, experts] = held
        self.away[layers, experts] = after
        self.mean[layers] += self.chance[layers, experts][:, None] * moved
        self.beside[layers] += self.apart[layers, experts][:, :, None] * moved[:, None]


def homes(
    shares: Floats,
    nodes: int,
    together: Together,
    *,
    seed: int = 0,
    start: Ints | None = None,
    workers: int = 1,
    deadline: float | None = None,
) -> Ints:
    """Home node of each expert ``[layers, experts]``, equally many on every node.

    The best of a start with even loads, two grown from experts used together, and ``start`` (homes at
    another price) if given. ``workers`` layers are worked on at once. After ``deadline`` (of ``time.monotonic``) no
    start is improved further.
    """

    def work(layer: int) -> Ints:
        rng, share, pairs = (
            np.random.default_rng([seed, layer]),
            shares[layer],
            together.pairs[layer],
        )
        starts = [balanced_start(share, nodes, rng)]
        if together.price > 0:
            starts += [grown(pairs, nodes, first) for first in (share, rng.random(len(share)))]
        if start is not None:
            starts.append(start[layer].copy())
        found = [exchanged(Homes(share, pairs, together, home, nodes), deadline) for home in starts]
        return min(found, key=lambda one: one[0])[1]

    jobs = Parallel(n_jobs=max(workers, 1), backend="threading")
    return np.stack(jobs(delayed(work)(layer) for layer in range(len(shares))))


def grown(pairs: Floats, nodes: int, first: Floats) -> Ints:
    """Nodes filled one after another: each from the expert largest in ``first``, then always the expert
    whose tokens use most of those already there.
    """
    chance = np.maximum(np.diagonal(pairs), 1e-12)
    home = np.full(len(pairs), nodes - 1, dtype=np.int64)
    free = np.ones(len(pairs), dtype=bool)
    for node in range(nodes - 1):
        pull, chosen = np.zeros(len(pairs)), int(np.where(free, first, -1.0).argmax())
        for _ in range(len(pairs) // nodes):
            home[chosen], free[chosen] = node, False
            pull += pairs[chosen] / chance
            chosen = int(np.where(free, pull, -1.0).argmax())
    return home


class Homes:
    """Home nodes of one layer's experts and what an exchange of two would change."""

    def __init__(self, share: Floats, pairs: Floats, together: Together, home: Ints, nodes: int):
        self.chance = np.diagonal(pairs)
        self.apart = pairs - np.diag(self.chance)
        self.unit = share * nodes
        self.top_k = together.top_k
        self.worth = together.price * (nodes - 1) / nodes
        self.home, self.nodes = home, nodes
        self.update()

    def update(self) -> None:
        """Loads, expected experts and pairs of each node anew from ``home``."""
        member = (self.home[:, None] == np.arange(self.nodes)).astype(np.float64)
        self.load = self.unit @ member
        self.beside = self.apart @ member
        self.mean = self.chance @ member
        self.both = 0.5 * (self.beside * member).sum(axis=0)
        self.value = float(self.cost(self.load, self.mean, self.both))

    def cost(self, load: Floats, mean: Floats, both: Floats) -> Floats:
        """What the nodes' loads and a token's copies to them cost, nodes on the last axis."""
        cost: Floats = pressure(load).sum(axis=-1)
        if self.worth:
            cost = cost + self.worth * touch_estimate(mean, both, self.top_k).sum(axis=-1)
        return cost

    def slopes(self) -> tuple[Floats, Floats, Floats]:
        """Change of the cost per node with its load, its expected experts and its pairs."""
        load = SHARPNESS * pressure(self.load)
        if not self.worth:
            return load, np.zeros(self.nodes), np.zeros(self.nodes)
        step = 1e-4 * np.maximum(self.mean, 1e-6)
        at = touch_estimate(self.mean, self.both, self.top_k)
        mean = (touch_estimate(self.mean + step, self.both, self.top_k) - at) / step
        pairs = (touch_estimate(self.mean, self.both + step, self.top_k) - at) / step
        return load, self.worth * mean, self.worth * pairs

    def gains(self) -> Floats:
        """Change of the cost ``[experts, experts]`` by exchanging two, at the present slopes."""
        load, mean, both = self.slopes()
        alone = self.unit[:, None] * load + self.chance[:, None] * mean + self.beside * both
        mine = self.home
        here = alone[np.arange(len(mine)), mine]
        toward = alone[:, mine]
        gain: Floats = toward + toward.T - here[:, None] - here
        gain -= self.apart * (both[mine][:, None] + both[mine])
        gain[np.tri(len(mine), dtype=bool) | (mine[:, None] == mine)] = np.inf
        return gain

    def exchange(self, ones: Ints, others: Ints) -> bool:
        """Make the one of these exchanges of two experts that truly costs least; whether one costs less."""
        rows = np.arange(len(ones))
        left, right = self.home[ones], self.home[others]
        shared = self.apart[ones, others]
        load, mean, both = (
            np.tile(now, (len(ones), 1)) for now in (self.load, self.mean, self.both)
        )
        for node, gone, come in ((left, ones, others), (right, others, ones)):
            load[rows, node] += self.unit[come] - self.unit[gone]
            mean[rows, node] += self.chance[come] - self.chance[gone]
            both[rows, node] += self.beside[come, node] - self.beside[gone, node] - shared
        cost = self.cost(load, mean, both)
        best = int(cost.argmin())
        if cost[best] > self.value - 1e-9:
            return False
        one, other = ones[best], others[best]
        self.home[one], self.home[other] = self.home[other], self.home[one]
        self.update()
        return True


def exchanged(layer: Homes, deadline: float | None = None) -> tuple[float, Ints]:
    """Cost and homes after the descent by exchanges, which ends at ``deadline``."""
    for _ in range(EXCHANGES):
        if deadline is not None and time.monotonic() > deadline:
            break
        gain = layer.gains()
        few = np.argpartition(gain, min(COMPARED, gain.size - 1), axis=None)[:COMPARED]
        few = few[gain.ravel()[few] < 0]
        if not few.size or not layer.exchange(few // len(gain), few % len(gain)):
            break
    return layer.value, layer.home
