"""Expert maps as arrays: which expert is in which slot, layer by layer, and which have several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

#: more experts than any layer has
_MOST_EXPERTS = 1 << 16


@dataclass(frozen=True)
class SlotTable:
    """An expert map as arrays: ``experts [layers, slots]``, its layers in order.

    ``copies [layers, experts]``: slots of each expert up to the highest one; ``None`` where a number is
    negative or far beyond any model's.
    """

    layers: tuple[int, ...]
    experts: NDArray[np.int64]
    copies: NDArray[np.int64] | None

    def of_layers(self, layers: tuple[int, ...]) -> SlotTable | None:
        """The table of some layers, ``None`` where one of them is not there."""
        if layers == self.layers:
            return self
        if layers not in self._parts:
            self._parts[layers] = self._part(layers)
        return self._parts[layers]

    def _part(self, layers: tuple[int, ...]) -> SlotTable | None:
        row_of = {layer: row for row, layer in enumerate(self.layers)}
        if any(layer not in row_of for layer in layers):
            return None
        rows = [row_of[layer] for layer in layers]
        return SlotTable(
            layers, self.experts[rows], None if self.copies is None else self.copies[rows]
        )

    @cached_property
    def _parts(self) -> dict[tuple[int, ...], SlotTable | None]:
        return {}

    def holds(self, num_experts: int) -> bool:
        """Whether the experts are ``0`` to ``num_experts - 1`` in some of the layers, and no other."""
        return self.copies is not None and self.copies.shape[1] == num_experts

    @cached_property
    def complete(self) -> bool:
        """Whether every expert has a slot in every layer."""
        return self.copies is not None and bool(self.copies.all())

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Flat place of each slot's expert in ``copies [layers, slots]``."""
        assert self.copies is not None
        return np.arange(0, self.copies.size, self.copies.shape[1])[:, None] + self.experts

    @cached_property
    def copied(self) -> NDArray[np.int64]:
        """Flat places in ``copies`` of experts with several slots."""
        assert self.copies is not None
        return np.flatnonzero(self.copies > 1)

    @cached_property
    def copied_slots(self) -> NDArray[np.int64]:
        """Flat places in ``experts`` of the slots of such experts."""
        assert self.copies is not None
        return np.flatnonzero((self.copies > 1).take(self.places))


def slot_table(
    layers: Sequence[int], experts: NDArray[np.int64], num_experts: int | None = None
) -> SlotTable:
    """The table of ``experts [layers, slots]``, of ``num_experts`` where that is known."""
    if (
        num_experts is None
        and experts.size
        and experts.min() >= 0
        and experts.max() < _MOST_EXPERTS
    ):
        num_experts = int(experts.max()) + 1
    copies = None if num_experts is None else count_copies(experts, num_experts)
    return SlotTable(tuple(layers), experts, copies)


def count_copies(experts: NDArray[np.int64], num_experts: int) -> NDArray[np.int64]:
    """Slots of each expert in each layer ``[layers, experts]``; ``experts [layers, slots]``."""
    size = len(experts) * num_experts
    # flat places of the slots' experts in an array [layers, experts]
    at = np.arange(0, size, num_experts)[:, None] + experts
    return np.bincount(at.ravel(), minlength=size).reshape(len(experts), num_experts)
