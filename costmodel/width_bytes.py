"""Bytes on a chip that depend on the width of its rank and not on the rest of a layout."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel import memory
from costmodel.operations import Operations


class WidthBytes:
    """HBM of a chip under ``tp``-way sharding, sequences at ``context`` tokens, by :mod:`costmodel.memory`.

    Lists have one number for each kind of layer. ``edge``: embedding and head of a stage that is first
    or not and last or not; ``row`` and ``sampled``: activations for each token of a pass and for each
    that reaches the LM head.
    """

    def __init__(self, operations: Operations, tp: int, context: float):
        one_of_each = [[(kind, 1.0)] for kind in operations.kinds]
        self._operations, self._tp = operations, tp
        self._dense = [float(memory.dense_weight_bytes(one, tp)) for one in one_of_each]
        self._slot = [float(memory.expert_slot_bytes(one)) for one in one_of_each]
        self._cached = [
            float(memory.kv_bytes_per_sequence(operations, one, tp, context)) for one in one_of_each
        ]
        self._draft_cached = float(memory.draft_kv_bytes(operations, tp, context))
        self._draft_weights: dict[int, float] = {}
        self._edge = {
            (first, last): float(memory.edge_weight_bytes(operations, tp, first=first, last=last))
            for first in (False, True)
            for last in (False, True)
        }
        self._row = float(memory.activation_bytes(operations, tp, 1.0, 0.0))
        self._sampled = float(memory.activation_bytes(operations, tp, 0.0, 1.0))

    def weights(self, counts: Sequence[int], chips: int, *, first: bool, last: bool) -> float:
        """All but routed experts of a stage of ``chips`` with ``counts`` layers of each kind."""
        total = _sum(counts, self._dense) + self._edge[first, last]
        return total + self._draft(chips) if last else total

    def slot(self, counts: Sequence[int]) -> float:
        """One expert slot in each layer."""
        return _sum(counts, self._slot)

    def cached(self, counts: Sequence[int], *, last: bool) -> float:
        """One sequence."""
        return _sum(counts, self._cached) + (self._draft_cached if last else 0.0)

    def active(self, rows: float, sampled: float) -> float:
        """At the peak of a pass of ``rows`` tokens per rank."""
        return rows * self._row + sampled * self._sampled

    def _draft(self, chips: int) -> float:
        if chips not in self._draft_weights:
            own = memory.draft_weight_bytes(self._operations, self._tp, chips)
            self._draft_weights[chips] = float(own)
        return self._draft_weights[chips]


def _sum(counts: Sequence[int], of_kind: Sequence[float]) -> float:
    return sum(count * own for count, own in zip(counts, of_kind, strict=True))
