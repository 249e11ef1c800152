"""How many replicas each expert gets. Where they go is decided elsewhere.

Two slots per chip: the best pairing joins the largest piece with the smallest, the second largest with the
second smallest, and so on, so that counts alone decide. All layers take their best move at once. What falls is the sum over pairs of a high power
of what each holds beyond nearly even; the peak alone is flat wherever two pairs share it.

Counts of which no expert has more than a busier one are few: they are given by how many experts have two replicas or
more, three or more, and so on. There every move of some experts across one of these borders and back across another
is tried. Other counts are reached from them by moving single replicas.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from itertools import permutations, product
from threading import Lock

import numpy as np

from solver.experts.slots import Floats, Ints

#: Powers of the loads by which replicas are spread at first: alone, and where they are moved on.
BENT, MOVED = (1.0, 0.9, 1.1), (1.0, 1.1, 1.2)
#: Steps of one descent at most; of single replicas, steps without a better one after which a layer is left.
STEPS, PATIENCE = 300, 8
#: Experts that cross a border at once, and borders that are looked at.
CROSSING, BORDERS = (1, 2, 4, 8, 16), 24
#: Experts that give a replica away and experts that may get one, beside the two of the fullest chip; part by which the
#: pieces that givers are left with are disturbed, so that others have their turn.
GIVERS, TAKERS, DISTURBED = 24, 4, 0.3
#: A pair counts from this share of the bound on, with this power of what is beyond.
NEARLY, POWER = 0.98, 8

#: of the shares and counts of some layers ``[n, experts]``: layer and counts of what is tried
_Moves = Callable[[Floats, Ints], tuple[Ints, Ints]]


def greedy_replicas(shares: Floats, num_slots: int, most: int) -> Ints:
    """Replica counts ``[layers, experts]`` with the smallest possible largest piece.

    Each further slot goes to the expert whose pieces ``share / replicas`` are largest. For the
    largest piece this greedy rule is exact; ``most`` caps the replicas of one expert (one per chip).
    """
    layers, experts = shares.shape
    replicas = np.ones((layers, experts), dtype=np.int64)
    pieces = shares.copy() if most > 1 else np.full_like(shares, -1.0)
    rows = np.arange(layers)
    for _ in range(num_slots - experts):
        hottest = pieces.argmax(axis=1)
        count = replicas[rows, hottest] + 1
        replicas[rows, hottest] = count
        pieces[rows, hottest] = np.where(count < most, shares[rows, hottest] / count, -1.0)
    return replicas


#: the run goes on from where any thread left it
_RUNNING = Lock()


class LargestPieces:
    """Smallest possible largest piece for every number of spare slots, in one run of the greedy rule.

    The pieces that the greedy rule splits are the largest of all ``share / r``, in falling order: after
    ``m`` splits the largest piece is the next one. A cap on the replicas leaves out those with ``r`` at
    the cap or above, but no piece of the busiest expert gets smaller than ``share / cap``.
    """

    def __init__(self, shares: Floats):
        self.shares = shares
        self._replicas = np.ones(shares.shape, dtype=np.int64)
        self._pieces = shares.copy()
        self._split: list[Floats] = []
        #: most replicas of any expert after so many splits
        self._most: list[int] = [1]

    def largest(self, spare: int, most: int) -> Floats:
        """``[layers]``: the largest piece with ``spare`` slots beyond one each, at most ``most`` replicas."""
        with _RUNNING:
            self._run(spare + 1)
        floor = self.shares.max(axis=1) / most
        if self._most[spare + 1] <= most:
            return np.asarray(np.maximum(self._split[spare], floor))
        replicas = greedy_replicas(self.shares, self.shares.shape[1] + spare, most)
        return np.asarray((self.shares / replicas).max(axis=1))

    def _run(self, steps: int) -> None:
        rows = np.arange(len(self.shares))
        for _ in range(steps - len(self._split)):
            hottest = self._pieces.argmax(axis=1)
            self._split.append(self._pieces[rows, hottest])
            count = self._replicas[rows, hottest] + 1
            self._most.append(max(self._most[-1], int(count.max())))
            self._replicas[rows, hottest] = count
            self._pieces[rows, hottest] = self.shares[rows, hottest] / count


def paired_replicas(
    shares: Floats,
    bound: Floats,
    num_chips: int,
    *,
    quick: bool,
    hot_copies: bool,
    tolerance: float,
    rng: np.random.Generator,
    deadline: float | None = None,
) -> Ints:
    """Replicas ``[layers, experts]`` for two slots on each chip, of several beginnings the one with the most even pairs.

    The largest piece is not all, it shares its chip with a small one: so replicas are spread by powers of the loads.
    ``quick``: none is moved after that. See :func:`lower_folds`.
    """
    best, least = np.empty(shares.shape, dtype=np.int64), np.full(len(shares), np.inf)
    for power in BENT if quick else MOVED:
        layers = np.flatnonzero(least > bound * (1 + tolerance))
        if not layers.size:
            break
        found = greedy_replicas(shares[layers] ** power, 2 * num_chips, num_chips)
        if not quick:
            found = lower_folds(
                shares[layers], found, bound[layers], num_chips,
                hot_copies=hot_copies, tolerance=tolerance, rng=rng, deadline=deadline,
            )  # fmt: skip
        peak = folded(shares[layers], found).max(axis=1)
        lower = peak < least[layers]
        best[layers[lower]], least[layers[lower]] = found[lower], peak[lower]
    return best


def lower_folds(
    shares: Floats,
    replicas: Ints,
    bound: Floats,
    num_chips: int,
    *,
    hot_copies: bool,
    tolerance: float,
    rng: np.random.Generator,
    deadline: float | None = None,
) -> Ints:
    """Counts ``[layers, experts]`` that pair no worse than ``replicas``, of which no expert has more than a busier one either.

    ``shares [layers, experts]`` and ``bound [layers]`` on the busiest chip in one unit. A layer is left once it is within
    ``tolerance`` of its bound, all at ``deadline`` (of ``time.monotonic``). Without
    ``hot_copies``, a busier expert may end with fewer.
    """
    order = np.argsort(-shares, axis=1, kind="stable")
    share = np.take_along_axis(shares, order, axis=1) / bound[:, None]
    counts = np.take_along_axis(replicas, order, axis=1)

    def single(some: Floats, now: Ints) -> tuple[Ints, Ints]:
        return _single_replicas(some, now, num_chips, rng)

    borders = min(int(counts.max()) + 1, num_chips, BORDERS) - 1
    if borders > 1:
        counts = _descended(
            share, counts, lambda _, now: _crossings(now, borders), 1, tolerance, deadline
        )
    if not hot_copies:
        counts = _descended(share, counts, single, PATIENCE, tolerance, deadline)
    found = np.empty_like(counts)
    np.put_along_axis(found, order, counts, axis=1)
    return found


def folded(shares: Floats, counts: Ints) -> Floats:
    """Loads ``[n, chips]`` of the chips of ``counts [n, experts]``, whose rows have equal and even sums."""
    pieces = np.repeat((shares / counts).ravel(), counts.ravel()).reshape(len(shares), -1)
    pieces.sort(axis=1)
    half = pieces.shape[1] // 2
    loads: Floats = pieces[:, :half] + pieces[:, : half - 1 : -1]
    return loads


def _descended(
    share: Floats,
    counts: Ints,
    moves: _Moves,
    patience: int,
    tolerance: float,
    deadline: float | None,
) -> Ints:
    """The counts with the lowest peak on the way down from ``counts``."""
    counts, best = counts.copy(), counts.copy()
    least, excess = _judged(share, counts)
    stale = np.zeros(len(share), dtype=np.int64)
    for _ in range(STEPS):
        live = np.flatnonzero((least > 1 + tolerance) & (stale < patience))
        if not live.size or (deadline is not None and time.monotonic() > deadline):
            break
        layer, tried = moves(share[live], counts[live])
        stale[live] += 1
        if not layer.size:
            continue
        layer = live[layer]
        peaks, costs = _judged(share[layer], tried)
        for values, lowest, kept in ((peaks, least, best), (costs, excess, counts)):
            at = _least_of_each(layer, values)
            at = at[values[at] < lowest[layer[at]] * (1 - 1e-9)]
            lowest[layer[at]], kept[layer[at]] = values[at], tried[at]
        stale[layer[at]] = 0  # these were lowered
    return best


def _judged(share: Floats, counts: Ints) -> tuple[Floats, Floats]:
    """Fullest chip and the excess of all chips, ``[n]`` each."""
    loads = folded(share, counts)
    excess: Floats = (np.maximum(loads - NEARLY, 0.0) ** POWER).sum(axis=1)
    return loads.max(axis=1), excess


def _least_of_each(layer: Ints, values: Floats) -> Ints:
    """Where the smallest of ``values`` is, for each layer that occurs."""
    order = np.lexsort((values, layer))
    first = np.ones(len(order), dtype=bool)
    first[1:] = layer[order][1:] != layer[order][:-1]
    return np.asarray(order[first])


def _crossings(counts: Ints, borders: int) -> tuple[Ints, Ints]:
    """All counts with some experts across one border and as many back across another.

    ``counts [layers, experts]`` fall; border *b* has before it the experts with *b + 2* replicas or more.
    """
    before = (counts[:, :, None] >= np.arange(2, borders + 3)).sum(axis=1)
    up = -np.diff(before, axis=1, prepend=counts.shape[1])
    down = up[:, 1:]  # what a border may fall is what the next one may rise
    to, frm, many = _border_moves(borders)
    room = np.where(frm == to - 1, 2 * many, many)  # these two borders approach each other
    layer, move = np.nonzero((up[:, to] >= room) & (down[:, frm] >= many))
    expert, many = np.arange(counts.shape[1]), many[move, None]
    more = before[layer, to[move], None]
    less = before[layer, frm[move], None]
    tried = counts[layer]
    tried += (expert >= more) & (expert < more + many)
    tried -= (expert < less) & (expert >= less - many)
    return layer, tried


@lru_cache(maxsize=64)
def _border_moves(borders: int) -> tuple[Ints, Ints, Ints]:
    """Border that experts cross upwards, border that as many cross downwards, and how many."""
    moves = [(*pair, many) for pair, many in product(permutations(range(borders), 2), CROSSING)]
    to, frm, many = np.array(moves, dtype=np.int64).reshape(-1, 3).T
    return to, frm, many


def _single_replicas(
    share: Floats, counts: Ints, num_chips: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Counts with one replica taken from an expert whose pieces stay small and given to one that the peak needs."""
    layers, experts = counts.shape
    rows = np.arange(layers)
    expert = np.repeat(np.tile(np.arange(experts), layers), counts.ravel()).reshape(layers, -1)
    piece = np.take_along_axis(share / counts, expert, axis=1)
    order = np.argsort(piece, axis=1, kind="stable")
    piece = np.take_along_axis(piece, order, axis=1)
    expert = np.take_along_axis(expert, order, axis=1)
    small = (piece + piece[:, ::-1]).argmax(axis=1)
    takers = np.column_stack(
        [expert[rows, -1 - small], expert[rows, small], rng.integers(0, experts, (layers, TAKERS))]
    )
    left = np.where(counts > 1, share / np.maximum(counts - 1, 1), np.inf)
    left *= 1 + DISTURBED * rng.random(left.shape)
    givers = np.argsort(left, axis=1)[:, :GIVERS]
    to = np.repeat(takers, givers.shape[1], axis=1)
    frm = np.tile(givers, takers.shape[1])
    row = rows[:, None]
    layer, move = np.nonzero((to != frm) & (counts[row, frm] > 1) & (counts[row, to] < num_chips))
    tried, at = counts[layer], np.arange(len(layer))
    tried[at, to[layer, move]] += 1
    tried[at, frm[layer, move]] -= 1
    return layer, tried
