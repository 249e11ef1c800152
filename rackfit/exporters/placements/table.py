"""An expert placement ready to be written for an engine. Knows no engine's format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.dispatch import check_placement
from topology.errors import InstanceError, Problem

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PlacementTable:
    """Experts by slot of every MoE layer, slots contiguous chip by chip.

    ``layer_ids`` are the model's layer indices of the rows of ``physical_to_logical
    [layers, slots]``; ``num_layers`` counts all layers of the model, dense ones included.
    """

    physical_to_logical: Ints
    num_experts: int
    slots_per_chip: tuple[int, ...]
    layer_ids: tuple[int, ...]
    num_layers: int

    def __post_init__(self) -> None:
        check_placement(self.physical_to_logical, self.num_experts, self.slots_per_chip)
        rows = self.physical_to_logical.shape[0]
        if len(self.layer_ids) != rows or len(set(self.layer_ids)) != rows:
            raise InstanceError(Problem("placement", f"{len(self.layer_ids)} ids, {rows} rows"))
        if min(self.layer_ids) < 0 or max(self.layer_ids) >= self.num_layers:
            raise InstanceError(Problem("placement", f"layer ids outside 0..{self.num_layers - 1}"))

    @property
    def num_slots(self) -> int:
        """Slots of one layer on all chips."""
        return int(self.physical_to_logical.shape[1])

    @property
    def num_chips(self) -> int:
        """Chips (expert-parallel ranks)."""
        return len(self.slots_per_chip)

    def even_slots(self, target: str) -> int:
        """Slots per chip, or ``InstanceError``: ``target`` has no way to say uneven chips."""
        if len(set(self.slots_per_chip)) != 1:
            raise InstanceError(
                Problem(
                    "slots",
                    f"{self.num_slots} slots on {self.num_chips} GPUs are uneven, which "
                    f"{target} cannot load; use a multiple of {self.num_chips}",
                )
            )
        return self.slots_per_chip[0]

    def uniform(self, target: str) -> PlacementTable:
        """The table itself, if its chips are even; else ``InstanceError``."""
        self.even_slots(target)
        return self

    def layer_rooms(self, target: str) -> list[int]:
        """Slots per chip of each layer, or ``InstanceError`` where the chips of one differ."""
        return [self.even_slots(target)] * len(self.layer_ids)

    def slots_per_gpu(self) -> list[int] | list[list[int]]:
        """Slots of each chip, the same in every layer."""
        return list(self.slots_per_chip)

    def rows(self) -> list[list[int]]:
        """Expert of each slot, layer by layer."""
        found: list[list[int]] = self.physical_to_logical.tolist()
        return found


@dataclass(frozen=True, slots=True)
class UnlikeTable:
    """As :class:`PlacementTable` where layers have unlike numbers of slots.

    ``experts [layers][slots]``; ``layer_slots [layers][chips]`` slots of each chip.
    """

    experts: tuple[tuple[int, ...], ...]
    num_experts: int
    layer_slots: tuple[tuple[int, ...], ...]
    layer_ids: tuple[int, ...]
    num_layers: int

    def __post_init__(self) -> None:
        for layer, row, slots in zip(self.layer_ids, self.experts, self.layer_slots, strict=True):
            PlacementTable(
                np.array([row], dtype=np.int64), self.num_experts, slots, (layer,), self.num_layers
            )

    @property
    def num_chips(self) -> int:
        """Chips (expert-parallel ranks)."""
        return len(self.layer_slots[0])

    def uniform(self, target: str) -> PlacementTable:
        """Always ``InstanceError``: ``target`` has no way to say unlike layers."""
        totals = [len(row) for row in self.experts]
        message = (
            f"{min(totals)} to {max(totals)} slots by layer (layer {self.layer_ids[0]}: {totals[0]}), "
            f"which {target} cannot load; it takes one number of slots for all layers "
            "(--layer-slots same), the JSON format takes any"
        )
        raise InstanceError(Problem("slots", message))

    def layer_rooms(self, target: str) -> list[int]:
        """Slots per chip of each layer, or ``InstanceError`` where the chips of one differ."""
        for layer, slots in zip(self.layer_ids, self.layer_slots, strict=True):
            if len(set(slots)) > 1:
                message = (
                    f"{min(slots)} to {max(slots)} slots per GPU, which {target} cannot load; within "
                    "a layer it takes one number for all GPUs (--layer-slots rows)"
                )
                raise InstanceError(Problem(f"layer {layer}", message))
        return [slots[0] for slots in self.layer_slots]

    def slots_per_gpu(self) -> list[int] | list[list[int]]:
        """Slots of each chip, layer by layer."""
        return [list(slots) for slots in self.layer_slots]

    def rows(self) -> list[list[int]]:
        """Expert of each slot, layer by layer."""
        return [list(row) for row in self.experts]


AnyTable = PlacementTable | UnlikeTable
