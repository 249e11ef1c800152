r"""How much of the prompts a cache of so many tokens would have: from the distances between uses of a block.

The distance of a use is the tokens of all blocks used since that block was used last, itself included. A cache of
``C`` tokens that drops the least recently used block first has the block exactly where its distance is at most
``C``, so that one pass over the requests says it for every capacity. A block is useful only with all before it; the
blocks of a prompt count as used last to first, so that what has a block has its prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.question.traffic.requests import Requests


@dataclass(frozen=True)
class Reuse:
    """Distances of uses that were not the first, in rising order, and the tokens of each; ``tokens`` of all prompts."""

    distances: NDArray[np.int64]
    found: NDArray[np.int64]
    tokens: int

    def hit_rate(self, capacity_tokens: float) -> float:
        """Share of prompt tokens that a cache of so many tokens has when they come."""
        last = int(np.searchsorted(self.distances, capacity_tokens, side="right"))
        return float(self.found[:last].sum()) / self.tokens if self.tokens else 0.0

    @property
    def most(self) -> float:
        """Share that a cache has which never forgets."""
        return self.hit_rate(float("inf"))


class _Sums:
    """Sums of a growing range of numbers of which any may change (a Fenwick tree)."""

    def __init__(self, size: int) -> None:
        self._tree = [0] * (size + 1)
        self.total = 0

    def add(self, place: int, value: int) -> None:
        self.total += value
        place += 1
        while place < len(self._tree):
            self._tree[place] += value
            place += place & -place

    def before(self, place: int) -> int:
        """Sum of the numbers at places less than this one."""
        found = 0
        while place > 0:
            found += self._tree[place]
            place -= place & -place
        return found


def reuse(requests: Requests) -> Reuse:
    """Distances between uses of each block, in the order in which requests come."""
    uses = sum(len(ids) for ids in requests.blocks)
    sums, now = _Sums(uses), 0
    last_use: dict[int, int] = {}
    sizes: dict[int, int] = {}
    distances: list[int] = []
    found: list[int] = []
    for ids, tokens in zip(requests.blocks, requests.block_sizes, strict=True):
        for block, held in zip(ids, tokens, strict=True):
            if block not in last_use:
                break
            distances.append(sums.total - sums.before(last_use[block]))
            found.append(held)
        for block, held in zip(reversed(ids), reversed(tokens), strict=True):
            if block in last_use:
                sums.add(last_use[block], -sizes[block])
            else:
                sizes[block] = held
            last_use[block] = now
            sums.add(now, sizes[block])
            now += 1
    order = np.argsort(np.array(distances, dtype=np.int64), kind="stable")
    return Reuse(
        np.array(distances, dtype=np.int64)[order],
        np.array(found, dtype=np.int64)[order],
        int(requests.input_tokens.sum()),
    )


def known_before(requests: Requests) -> NDArray[np.int64]:
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
