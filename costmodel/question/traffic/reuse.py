r"""How much of the prompts a cache of so many tokens would have: from the distances between uses of a block.

The distance of a use is the tokens of all blocks used since that block was used last, itself included. A cache of
``C`` tokens that drops the least recently used block first has the block exactly where its distance is at most
``C``, so that one pass over the requests says it for every capacity. A block is useful only with all before it; the
blocks of a prompt count as used last to first, so that what has a block has its prefix.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from costmodel.question.traffic.requests import Requests

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Reuse:
    """Distances of uses that were not the first, in rising order, and the tokens of each; ``tokens`` of all prompts."""

    distances: Ints
    found: Ints
    tokens: int

    def hit_rate(self, capacity_tokens: float) -> float:
        """Share of prompt tokens that a cache of so many tokens has when they come."""
        last = int(np.searchsorted(self.distances, capacity_tokens, side="right"))
        return float(self.found[:last].sum()) / self.tokens if self.tokens else 0.0

    @property
    def most(self) -> float:
        """Share that a cache has which never forgets."""
        return self.hit_rate(float("inf"))


@dataclass(frozen=True)
class _Uses:
    """Blocks of all prompts one after another ``[places]``, and their uses in the order in which a cache has them.

    ``request``, ``block``, ``held``: by place. ``use``: which use a place stands for; a block that a prompt names twice is
    used once. ``of_request``, ``size``, ``before``: by use, which the last one before it was (-1: none).
    """

    request: Ints
    held: Ints
    use: Ints
    of_request: Ints
    size: Ints
    before: Ints

    @classmethod
    def of(cls, requests: Requests) -> _Uses:
        counts = np.array([len(ids) for ids in requests.blocks], dtype=np.int64)
        places = int(counts.sum())
        ids = np.fromiter(chain.from_iterable(requests.blocks), np.int64, places)
        held = np.fromiter(chain.from_iterable(requests.block_sizes), np.int64, places)
        request = np.repeat(np.arange(len(counts)), counts)
        _, first, block = np.unique(ids, return_index=True, return_inverse=True)
        # a prompt's blocks are used last to first: the place from its end orders its uses
        ends = np.cumsum(counts)
        turn = ends[request] - 1 - np.arange(places) + (ends - counts)[request]
        order = np.argsort(block * places + turn, kind="stable")
        again = np.zeros(places, dtype=bool)
        again[1:] = block[order][1:] == block[order][:-1]
        twice = again.copy()
        twice[1:] &= request[order][1:] == request[order][:-1]
        # of a block that a prompt names several times, the use nearest to its beginning counts: the last one in turn
        kept = np.append(~twice[1:], True) if places else again
        chosen = order[kept]
        number = np.empty(places, dtype=np.int64)
        number[np.sort(turn[chosen])] = np.arange(len(chosen))
        use_of_chosen = number[turn[chosen]]
        group = np.cumsum(~twice) - 1
        use = np.empty(places, dtype=np.int64)
        use[order] = use_of_chosen[group]
        before = np.full(len(chosen), -1, dtype=np.int64)
        same = block[chosen][1:] == block[chosen][:-1]
        before[use_of_chosen[1:][same]] = use_of_chosen[:-1][same]
        of_request, size = np.empty_like(before), np.empty_like(before)
        of_request[use_of_chosen] = request[chosen]
        size[use_of_chosen] = held[first][block[chosen]]
        return cls(request, held, use, of_request, size, before)


def reuse(requests: Requests) -> Reuse:
    """Distances between uses of each block, in the order in which requests come.

    Of a block used last at ``i`` and again by a prompt whose uses begin at ``j``: the sizes of all uses from ``i`` up to
    ``j``, less those of blocks that were used again meanwhile.
    """
    uses = _Uses.of(requests)
    tokens = int(requests.input_tokens.sum())
    again = np.flatnonzero(uses.before >= 0)
    # uses of one prompt do not count for each other: in rising order none comes after a greater one
    again = again[np.lexsort((uses.before[again], uses.of_request[again]))]
    rank = np.empty(len(again), dtype=np.int64)
    rank[np.argsort(uses.before[again], kind="stable")] = np.arange(len(again))
    moved = _greater_before(rank, uses.size[uses.before[again]])
    sums = np.concatenate([[0], np.cumsum(uses.size)])
    begins = np.searchsorted(uses.of_request, uses.of_request[again], side="left")
    distance = np.full(len(uses.before), -1, dtype=np.int64)
    distance[again] = sums[begins] - sums[uses.before[again]] - moved
    # useful up to the first block of a prompt that nobody had
    unknown = np.cumsum(uses.before[uses.use] < 0)
    starts = np.searchsorted(uses.request, uses.request, side="left")
    before = np.concatenate([[0], unknown])[starts]
    useful = np.flatnonzero(unknown == before)
    # a block is useful where all before it are there: one prompt's distances never fall
    apart = uses.request[useful] * (sums[-1] + 1)
    found = np.maximum.accumulate(distance[uses.use[useful]] + apart) - apart
    order = np.argsort(found, kind="stable")
    return Reuse(found[order], uses.held[useful][order], tokens)


def _greater_before(values: Ints, weights: Ints) -> Ints:
    """Sum of the weights before each place that belong to greater values; ``values`` are each of 0 to n - 1 once.

    Bit by bit from the highest: of two values that first differ in a bit, the greater has it. Values that agree so
    far stay together in their order, from the place where the least of them would stand.
    """
    count = len(values)
    found = np.zeros(count, dtype=np.int64)
    order = np.arange(count)
    for bit in reversed(range(max(count - 1, 0).bit_length())):
        own = values[order]
        high = (own >> bit) & 1
        start = (own >> (bit + 1)) << (bit + 1)
        heavy = np.concatenate([[0], np.cumsum(high * weights[order])])
        ones = np.concatenate([[0], np.cumsum(high)])
        zero = high == 0
        found[order[zero]] += heavy[:-1][zero] - heavy[start[zero]]
        ones_here = ones[:-1] - ones[start]
        place = np.where(zero, np.arange(count) - ones_here, start + (1 << bit) + ones_here)
        moved = np.empty_like(order)
        moved[place] = order
        order = moved
    return found


def known_before(requests: Requests) -> Ints:
    """Tokens of each prompt ``[requests]`` that a cache which never forgets has when it comes."""
    seen: set[int] = set()
    found = np.zeros(len(requests), dtype=np.int64)
    for number, (ids, sizes) in enumerate(zip(requests.blocks, requests.block_sizes, strict=True)):
        for block, size in zip(ids, sizes, strict=True):
            if block not in seen:
                break
            found[number] += size
        seen.update(ids)
    return found
