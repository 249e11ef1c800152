"""Bytes on a chip that depend on the width of its rank and not on the rest of a layout."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.passes.operations import LayerKind, Operations
from costmodel.replica import memory


class WidthBytes:
    """HBM of a chip under ``tp``-way sharding, by the functions of :mod:`costmodel.replica.memory`."""

    def __init__(self, operations: Operations, tp: int):
        self._operations, self._tp = operations, tp
        #: of one layer of each kind
        self._layers = [[(kind, 1.0)] for kind in operations.kinds]
        self._dense = [float(memory.dense_weight_bytes(layer, tp)) for layer in self._layers]
        self._slot = [float(memory.expert_slot_bytes(layer)) for layer in self._layers]
        self._row = float(memory.activation_bytes(operations, tp, 1.0, 0.0))
        self._sampled = float(memory.activation_bytes(operations, tp, 0.0, 1.0))
        self._edges: dict[tuple[bool, bool], float] = {}
        self._draft_weights: dict[tuple[int, bool], float] = {}
        self._cached: dict[int, tuple[list[float], float]] = {}

    @property
    def single_layers(self) -> list[list[int]]:
        """Counts of each kind of layer for one layer of each kind."""
        kinds = range(len(self._layers))
        return [[int(kind == own) for kind in kinds] for own in kinds]

    def weights(
        self, counts: Sequence[int], chips: int, *, first: bool, last: bool, cut: bool = False
    ) -> float:
        """All but routed experts of a stage of ``chips`` with ``counts`` layers of each kind."""
        return self.layers(counts) + self.edge(chips, first=first, last=last, cut=cut)

    def layers(self, counts: Sequence[int]) -> float:
        """All of the layers but routed experts."""
        return _sum(counts, self._dense)

    def edge(self, chips: int, *, first: bool, last: bool, cut: bool = False) -> float:
        """Embedding, head and drafting modules of a stage of ``chips``; whether the modules' experts are ``cut`` over all."""
        total = self._edge(first, last)
        return total + self._draft(chips, cut) if last else total

    def slot(self, counts: Sequence[int]) -> float:
        """One expert slot in each layer."""
        return _sum(counts, self._slot)

    def cached(self, counts: Sequence[int], context: int, *, last: bool) -> float:
        """One sequence of ``context`` tokens."""
        return _sum(counts, self._of_context(context)[0]) + (self.drafted(context) if last else 0.0)

    def drafted(self, context: int) -> float:
        """One sequence of ``context`` tokens in the drafting modules of a last stage."""
        return self._of_context(context)[1]

    def _of_context(self, context: int) -> tuple[list[float], float]:
        if context not in self._cached:
            self._cached[context] = (
                [self._sequence(layer, context) for layer in self._layers],
                float(memory.draft_kv_bytes(self._operations, self._tp, context)),
            )
        return self._cached[context]

    def active(self, rows: float, sampled: float) -> float:
        """At the peak of a pass of ``rows`` tokens per rank, ``sampled`` of which reach the LM head."""
        return rows * self._row + sampled * self._sampled

    def _sequence(self, layer: Sequence[tuple[LayerKind, float]], context: int) -> float:
        return float(memory.kv_bytes_per_sequence(self._operations, layer, self._tp, context))

    def _edge(self, first: bool, last: bool) -> float:
        if (first, last) not in self._edges:
            own = memory.edge_weight_bytes(self._operations, self._tp, first=first, last=last)
            self._edges[first, last] = float(own)
        return self._edges[first, last]

    def _draft(self, chips: int, cut: bool) -> float:
        if (chips, cut) not in self._draft_weights:
            own = memory.draft_weight_bytes(self._operations, self._tp, chips, float(not cut))
            self._draft_weights[chips, cut] = float(own)
        return self._draft_weights[chips, cut]


def _sum(counts: Sequence[int], of_kind: Sequence[float]) -> float:
    return sum(count * own for count, own in zip(counts, of_kind, strict=True))
