"""All replica counts of which no expert has more than a busier one: they are few enough to try each.

They are the ways to write the slots as a falling sum of one part per expert: 8,349 for 256 experts in 288 slots, 853 for
8 experts in 32. Two slots per chip are paired largest with smallest, so that the least of their peaks is the optimum.
With more slots counting says what each of the counts takes at least, and the best few are packed.
"""

from __future__ import annotations

import time
from functools import lru_cache

import numpy as np

from solver.experts.bounds.closed_form import ROUNDING, counting_bound
from solver.experts.local.repartition import descend
from solver.experts.packing import pack_largest_first, paired_table
from solver.experts.replicas import greedy_replicas
from solver.experts.slots import Floats, Ints, Slots

#: Numbers of a list up to which its counts are tried; with more than two slots per chip, pieces of one layer and of all.
LISTED, PIECES, ALL_PIECES = 1_500_000, 2_500_000, 20_000_000
#: Counts that are judged at once; counts that are packed for a layer, and sweeps of their descent.
BLOCK, PACKED, SWEEPS = 256, 8, 60


def hot_counts(experts: int, slots: Slots) -> Ints | None:
    """Counts ``[n, some]`` of the busiest experts, the busiest first, the others with one each; ``None``: too many, or none are spare."""
    spare = slots.total - experts
    if not (slots.even and slots.width > 1 and spare):
        return None
    some = min(spare, experts)
    largest = min(spare, slots.num_chips - 1)
    if _number(spare, some, largest, LISTED // some) > LISTED // some:
        return None
    return _listed(spare, some, largest)


def place_pairs(
    shares: Floats, some: Ints, slots: Slots, deadline: float | None
) -> tuple[Ints, Floats]:
    """Slot tables ``[layers, chips, 2]`` of the best counts, and what no counts are below ``[layers]``.

    After ``deadline`` (of ``time.monotonic``) a layer gets the counts with the smallest largest piece, and 0.
    """
    tables = []
    lows = np.zeros(len(shares))
    for layer, share in enumerate(shares):
        if deadline is not None and time.monotonic() > deadline:
            counts = greedy_replicas(share[None], slots.total, slots.num_chips)[0]
        else:
            counts, lows[layer] = _least_fold(share, some)
        tables.append(paired_table(share, counts))
    return np.stack(tables), lows * (1 - ROUNDING)


def improve_wide(
    shares: Floats,
    table: Ints,
    peak: Floats,
    bound: Floats,
    some: Ints,
    slots: Slots,
    *,
    tolerance: float,
    rng: np.random.Generator,
    deadline: float | None,
) -> tuple[Ints, Floats] | None:
    """Tables ``[layers, chips, width]`` no worse than these, and bounds no lower; ``None``: counts are too many, or time too short.

    With three or more slots per chip, for layers beyond ``tolerance`` of their bound.
    """
    open_ = np.flatnonzero(peak > bound * (1 + tolerance))
    pieces = len(some) * slots.total
    if pieces > PIECES or len(open_) * pieces > ALL_PIECES:
        return None
    found = _packed(shares[open_], some, slots, tolerance, rng, deadline) if len(open_) else None
    if found is None:
        return None if len(open_) else (table, bound)
    table, bound = table.copy(), bound.copy()
    tables, peaks, lows = found
    bound[open_] = np.maximum(bound[open_], lows)
    lower = peaks < peak[open_]
    table[open_[lower]] = tables[lower]
    return table, bound


def _packed(
    shares: Floats,
    some: Ints,
    slots: Slots,
    tolerance: float,
    rng: np.random.Generator,
    deadline: float | None,
) -> tuple[Ints, Floats, Floats] | None:
    """Tables of the best counts, their peaks and what no counts are below; ``None``: time is too short."""
    experts = shares.shape[1]
    order = np.argsort(-shares, axis=1, kind="stable")
    whole = _whole(some, experts)
    lows, chosen = np.zeros(len(shares)), list[Ints]()
    for layer, share in enumerate(np.take_along_axis(shares, order, axis=1)):
        if deadline is not None and time.monotonic() > deadline:
            return None
        pieces = np.repeat((share / whole).ravel(), whole.ravel()).reshape(len(whole), -1)
        low = counting_bound(pieces, slots.num_chips, slots.width)
        best = np.argsort(low, kind="stable")[:PACKED]
        lows[layer] = low[best[0]]
        chosen.append(np.resize(best, PACKED))
    rows = np.repeat(np.arange(len(shares)), PACKED)
    counts = np.empty((len(rows), experts), dtype=np.int64)
    np.put_along_axis(counts, order[rows], whole[np.concatenate(chosen)], axis=1)
    own = shares[rows]
    pieces = np.concatenate([own / counts, np.zeros((len(rows), 1))], axis=1)
    table, peak = descend(
        pack_largest_first(own, counts, slots), pieces, lows[rows],
        least=slots.least, sweeps=SWEEPS, tolerance=tolerance, rng=rng, deadline=deadline,
    )  # fmt: skip
    each = peak.reshape(len(shares), PACKED)
    best = each.argmin(axis=1) + PACKED * np.arange(len(shares))
    return table[best], peak[best], lows * (1 - ROUNDING)


def _least_fold(share: Floats, some: Ints) -> tuple[Ints, float]:
    """Of one layer the counts ``[experts]`` whose best pairing has the lowest busiest chip, and its load."""
    order = np.argsort(-share, kind="stable")
    falling, number = share[order], some.shape[1]
    rest = falling[number:]
    pieces = falling[:number] / some
    # the largest piece is beside the smallest
    low = pieces.max(axis=1, initial=rest.max(initial=0.0))
    low += pieces.min(axis=1, initial=rest.min(initial=np.inf))
    rows = np.argsort(low, kind="stable")
    best, least = 0, np.inf
    for start in range(0, len(rows), BLOCK):
        here = rows[start : start + BLOCK]
        if low[here[0]] >= least:
            break
        whole = _whole(some[here], len(share))
        peaks = _paired(falling, whole)
        if peaks.min() < least:
            best, least = int(here[peaks.argmin()]), float(peaks.min())
    counts = np.empty(len(share), dtype=np.int64)
    counts[order] = _whole(some[best : best + 1], len(share))[0]
    return counts, least


def _paired(share: Floats, counts: Ints) -> Floats:
    """Busiest chip ``[n]`` of the best pairing of each of ``counts [n, experts]``.

    Largest with smallest, unless the middle pairs an expert with itself: of its ``r`` pieces each needs a chip whose other
    piece is small enough, and those that are too large for it take a smaller one each. So of the other pieces at most
    ``chips - r`` are too large.
    """
    n, slots = len(counts), int(counts[0].sum())
    expert = np.repeat(np.tile(np.arange(len(share)), n), counts.ravel()).reshape(n, slots)
    pieces = np.repeat((share / counts).ravel(), counts.ravel()).reshape(n, slots)
    order = np.argsort(pieces, axis=1, kind="stable")
    pieces = np.take_along_axis(pieces, order, axis=1)
    chips, rows = slots // 2, np.arange(n)
    peaks: Floats = (pieces[:, :chips] + pieces[:, : chips - 1 : -1]).max(axis=1)
    middle = expert[rows, order[:, chips]]
    itself = np.flatnonzero(expert[rows, order[:, chips - 1]] == middle)
    beside = chips + counts[itself, middle[itself]] - 1
    peaks[itself] = np.maximum(peaks[itself], pieces[itself, chips] + pieces[itself, beside])
    return peaks


def _whole(some: Ints, experts: int) -> Ints:
    """Counts of all experts."""
    return np.pad(some, ((0, 0), (0, experts - some.shape[1])), constant_values=1)


def _number(total: int, parts: int, largest: int, most: int) -> int:
    """Ways to write a total as up to so many parts of at most ``largest``, any order; beyond ``most`` any number above it."""
    if total > largest * parts:
        return 0
    if total * parts > most * 8:
        return most + 1
    # parts and largest part change places: ways with parts of at most `parts`, at most `largest` of them
    ways = np.zeros((largest + 1, total + 1), dtype=np.float64)
    ways[0, 0] = 1.0
    for size in range(1, min(parts, total) + 1):
        for used in range(1, largest + 1):
            ways[used, size:] += ways[used - 1, : total + 1 - size]
    return int(min(ways[:, total].sum(), most + 1))


@lru_cache(maxsize=32)
def _listed(spare: int, some: int, largest: int) -> Ints:
    """Falling rows ``[n, some]`` of counts: one each, and ``spare`` more, no more than ``largest`` of them for one."""
    found = np.empty((1, 0), dtype=np.int64)
    left, most = np.array([spare]), np.array([largest])
    for place in range(some):
        least = -(-left // (some - place))
        ways = np.maximum(np.minimum(most, left) - least + 1, 0)
        rows = np.repeat(np.arange(len(found)), ways)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(ways) - ways, ways)
        most = least[rows] + within
        found = np.concatenate([found[rows], most[:, None]], axis=1)
        left = left[rows] - most
    found += 1
    found.flags.writeable = False
    return found
