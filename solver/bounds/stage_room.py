"""What HBM leaves of the cuts into stages of one shape, and its rate bound under these.

Beside a large batch HBM holds few layers in a stage: the quickest cut may not be allowed. A rank with ``n`` sequences has, on the
chips of the stage ``[b, e)``, the weights of its layers and their caches of ``n`` sequences, the first stage with the embedding,
the last one with the head and its logits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.tolerance import RELATIVE
from solver.bounds.block import Block
from solver.place.stages import reach_of
from solver.shapes.shapes import ROLES

#: share by which the largest batches that are bounded with the cuts of the smallest of them are apart, and by how much more the next
_STEP, _WIDER = 0.005, 1.5
#: share that more steps may not tell
_CLOSE = 0.001


class StageRoom:
    """Stages that HBM holds, of a block of one shape."""

    def __init__(self, block: Block):
        instance, room = block.instance, block.room
        self.pp, self._active = int(block.pp[0]), room.active
        width = instance.width_bytes(int(block.tp[0]))
        context = instance.kept_context(ROLES[block.role])
        self.layers = layers = instance.operations.num_layers
        own = np.empty((2, layers))
        for kind, counts in zip(instance.operations.kinds, width.single_layers, strict=True):
            weights = width.layers(counts) + width.slot(counts) * float(room.low[0])
            cached = width.cached(counts, context, last=False)
            own[:, list(kind.layers)] = [[weights], [cached]]
        sums = np.concatenate([np.zeros((2, 1)), np.cumsum(own, axis=1)], axis=1)
        self._weights, self._cached = sums[:, None, :] - sums[:, :, None]
        chips, cut = int(block.stage_chips[0]), not block.whole[0]
        self._weights[0, :] += width.edge(chips, first=True, last=False, cut=cut)
        self._weights[:, -1] += width.edge(chips, first=False, last=True, cut=cut)
        self._cached[:, -1] += width.drafted(context)
        self._left = room.usable_bytes * (1 + RELATIVE) - block.efficiency.runtime_bytes
        begins, ends = np.ogrid[: layers + 1, : layers + 1]
        self._stages = ends > begins

    def allowed(self, sequences: int) -> NDArray[np.bool_]:
        """``[begin, end]``: whether a stage of these layers fits beside so many sequences on a rank."""
        microbatch = np.array([float(-(-sequences // self.pp))])
        held = self._weights + sequences * self._cached + self._active(microbatch, 0.0).item()
        held[:, -1] += (self._active(microbatch, 1.0) - self._active(microbatch, 0.0)).item()
        return np.asarray(self._stages & (held <= self._left * (1 + RELATIVE)))

    def holds(self, sequences: int) -> bool:
        """Whether some cut does."""
        reach, begun = reach_of(self.allowed(sequences)), 0
        for _ in range(self.pp):
            if begun < self.layers:
                begun = reach[begun]
        return begun == self.layers

    def most(self, sequences: int) -> int:
        """The most sequences, no more than so many, beside which some cut fits."""
        low, high = 0, sequences
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.holds(middle) else (low, middle - 1)
        return low

    def fewest_alike(self, sequences: int) -> int:
        """The fewest sequences beside which the same stages fit."""
        same, low, high = self.allowed(sequences), 1, sequences
        while low < high:
            middle = (low + high) // 2
            if np.array_equal(self.allowed(middle), same):
                high = middle
            else:
                low = middle + 1
        return low


def within_cuts(block: Block, enough: float = 0.0) -> float:
    """Rate bound of one shape in stages, not of prefill, that fit beside the batch's caches.

    Batches with more than ``n`` and up to ``N`` sequences on a rank are bounded at ``N`` with the cuts that fit beside ``n + 1``,
    from the largest down, until no smaller one serves more even with any cut, or some serve more than ``enough`` for all that is
    known: then the bound is that of any cut.
    """
    block.one_cut = block.cut_for_both
    bounds = block.bounds()
    first = plain = float(bounds.requests_per_s[0])
    most = int(bounds.per_rank[0])
    room, best = StageRoom(block), 0.0
    holds = room.most(most)
    if holds < most:
        plain, most = _at_most(block, holds), holds
    step = _STEP
    while most and plain > max(best * (1 + _CLOSE), enough):
        fewest = min(room.fewest_alike(most), int(most * (1 - step)) + 1)
        block.allowed = room.allowed(fewest)
        best = max(best, _at_most(block, most))
        if best > enough > 0.0:
            return first
        block.allowed, most, step = None, fewest - 1, step * _WIDER
        plain = _at_most(block, most)
    return max(best, plain if most else 0.0)


def _at_most(block: Block, sequences: int) -> float:
    """Rate bound with so many sequences on a rank at most, in each of the passes that take turns."""
    if not sequences:
        return 0.0
    block.most, block.beside = sequences, float(sequences)
    return float(block.bounds().requests_per_s[0])
