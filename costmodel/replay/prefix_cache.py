"""Blocks of prompts that a replica still has: the longest known prefix of a prompt, least recently used out first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


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
