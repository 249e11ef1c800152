"""Blocks of prompts that a replica still has: the longest known prefix of a prompt, least recently used out first.

In HBM they have what running sequences leave. A host tier has a copy of each, and room for so many tokens; what is
there and not in HBM is read back before the prompt's first pass.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass


class PrefixCache:
    """Blocks in the order of their last use.

    An id stands for a whole prefix up to its block, so that a block is useful only where all before it
    are there: the blocks of a prompt are used last to first, and its tail leaves first.
    """

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, int] = OrderedDict()
        self.tokens = 0

    def known(self, ids: Sequence[int], sizes: Sequence[int]) -> int:
        """Tokens of the longest prefix that is there; sizes by block."""
        found = 0
        for block, size in zip(ids, sizes, strict=True):
            if block not in self._blocks:
                break
            found += size
        return found

    def use(self, ids: Sequence[int], sizes: Sequence[int]) -> None:
        """Take in the blocks of a prompt, or mark them as used now."""
        blocks = self._blocks
        for block, size in zip(reversed(ids), reversed(sizes), strict=True):
            if block in blocks:
                blocks.move_to_end(block)
            else:
                blocks[block] = size
                self.tokens += size

    def shrink(self, tokens: float) -> None:
        """Drop the least recently used blocks until at most so many tokens are left."""
        blocks = self._blocks
        while self.tokens > tokens and blocks:
            _, size = blocks.popitem(last=False)
            self.tokens -= size


@dataclass(frozen=True)
class HostRoom:
    """Memory of a replica's hosts: tokens of KV that it holds, and seconds to read one back."""

    tokens: float
    read_s: float


class Prefixes:
    """What a replica keeps of earlier prompts: in HBM, and in the memory of its hosts where there is ``host``."""

    def __init__(self, host: HostRoom | None = None) -> None:
        self.host = host
        self._hbm = PrefixCache()
        self._copies = PrefixCache()

    def known(self, ids: Sequence[int], sizes: Sequence[int]) -> int:
        """Tokens of the longest prefix that is somewhere."""
        found = self._hbm.known(ids, sizes)
        return found if self.host is None else max(found, self._copies.known(ids, sizes))

    def read_s(self, ids: Sequence[int], sizes: Sequence[int]) -> float:
        """Seconds to read back what of that is not in HBM."""
        if self.host is None:
            return 0.0
        return (self.known(ids, sizes) - self._hbm.known(ids, sizes)) * self.host.read_s

    def use(self, ids: Sequence[int], sizes: Sequence[int]) -> None:
        """Take in the blocks of a prompt, or mark them as used now."""
        self._hbm.use(ids, sizes)
        if self.host is not None:
            self._copies.use(ids, sizes)
            self._copies.shrink(self.host.tokens)

    def shrink(self, tokens: float) -> None:
        """Keep at most so many tokens in HBM."""
        self._hbm.shrink(tokens)
