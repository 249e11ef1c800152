"""Requests that arrive over time, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from topology.errors import InstanceError, Problem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


#: requests that are drawn at most; their percentiles need no more
MOST_DRAWN = 1_000_000


def drawn_count(count: float, place: str) -> int:
    """How many requests to draw for a number that is asked for, at least one. Raises ``InstanceError``."""
    if not count <= MOST_DRAWN:
        message = f"{count:,.0f} requests; at most {MOST_DRAWN:,} are drawn: ask for fewer"
        raise InstanceError(Problem(place, message))
    return max(1, round(count))


@dataclass(frozen=True)
class Requests:
    """Requests in the order of their arrival, ``[requests]`` each.

    ``arrival_s`` counts from the start. ``cached_tokens`` of the prompt are known wherever it is served.
    ``blocks``: ids of the leading blocks of each prompt (equal ids: an equal prefix up to and including
    the block), and ``block_sizes``: tokens of each; empty where nothing is known of prefixes.
    """

    arrival_s: Array
    input_tokens: Ints
    output_tokens: Ints
    cached_tokens: Ints
    blocks: Sequence[Sequence[int]] = ()
    block_sizes: Sequence[Sequence[int]] = ()

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def duration_s(self) -> float:
        """Seconds from the start to the last arrival."""
        return float(self.arrival_s[-1]) if len(self) else 0.0

    @property
    def rate(self) -> float:
        """Mean requests per second."""
        return len(self) / self.duration_s if self.duration_s else float("inf")

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt with its answer."""
        return int((self.input_tokens + self.output_tokens).max()) if len(self) else 1

    def at_rate(self, rate: float) -> Requests:
        """The same requests with all gaps stretched alike, so that they come at a mean rate."""
        return replace(self, arrival_s=self.arrival_s * (self.rate / rate))

    def until(self, seconds: float) -> Requests:
        """Those that come within so many seconds."""
        last = int(np.searchsorted(self.arrival_s, seconds, side="right"))
        return replace(
            self,
            arrival_s=self.arrival_s[:last],
            input_tokens=self.input_tokens[:last],
            output_tokens=self.output_tokens[:last],
            cached_tokens=self.cached_tokens[:last],
            blocks=self.blocks[:last],
            block_sizes=self.block_sizes[:last],
        )

    def again(self, count: int, seed: int, stretches: int = 8) -> Requests:
        """So many requests like these: stretches of neighbours, an eighth each, drawn again and again.

        Gaps between neighbours stay, so that bursts and drifts shorter than a stretch do too. The same seed gives
        the same requests. Where prompts share prefixes, only the gaps are drawn: requests keep their order, from one drawn
        by the seed on, and one that comes again has other prefixes than before.
        """
        together = max(1, len(self) // stretches)
        rng = np.random.default_rng(seed)
        starts = rng.integers(0, len(self), -(-count // together))
        rows = ((starts[:, None] + np.arange(together)) % len(self)).ravel()[:count]
        arrival = np.cumsum(np.diff(self.arrival_s, prepend=0.0)[rows])
        if not len(self.blocks):
            return replace(self.rows(rows), arrival_s=arrival)
        turns = int(rng.integers(0, len(self))) + np.arange(count)
        drawn = self.rows(turns % len(self))
        many = 1 + max((block for ids in self.blocks for block in ids), default=0)
        blocks = [
            [block + turn * many for block in ids]
            for turn, ids in zip((turns // len(self)).tolist(), drawn.blocks, strict=True)
        ]
        return replace(drawn, arrival_s=arrival, blocks=blocks)

    def rows(self, rows: Ints) -> Requests:
        """Some of the requests, with their own times."""
        return replace(
            self,
            arrival_s=self.arrival_s[rows],
            input_tokens=self.input_tokens[rows],
            output_tokens=self.output_tokens[rows],
            cached_tokens=self.cached_tokens[rows],
            blocks=[self.blocks[row] for row in rows] if len(self.blocks) else (),
            block_sizes=[self.block_sizes[row] for row in rows] if len(self.block_sizes) else (),
        )

    def split(self, shares: Sequence[float], seed: int) -> list[Requests]:
        """The requests dealt out by chance, each to one of the shares, whatever it is and whenever it comes.

        So each part is like the whole but thinner: the same lengths on average, the same drifts. ``shares`` add up to 1. The same
        seed gives the same parts.
        """
        ends = np.cumsum(shares)
        drawn = np.random.default_rng([seed, len(self)]).random(len(self)) * ends[-1]
        own = np.minimum(np.searchsorted(ends, drawn, side="right"), len(ends) - 1)
        return [self.rows(np.flatnonzero(own == part)) for part in range(len(ends))]

    def whole_prompts(self) -> Requests:
        """The same requests with nothing known of what their prompts share."""
        return replace(self, blocks=(), block_sizes=())

    def spread(self, seconds: float) -> Requests:
        """Requests with one time, at equal distances over so many seconds from then on."""
        _, place, many = np.unique(self.arrival_s, return_inverse=True, return_counts=True)
        first = np.concatenate([[0], np.cumsum(many)[:-1]])
        turn = np.arange(len(self)) - first[place]
        at = self.arrival_s + seconds * turn / many[place]
        order = np.argsort(at, kind="stable")
        return replace(self.rows(order), arrival_s=at[order])
