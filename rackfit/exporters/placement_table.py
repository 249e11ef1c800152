"""An expert placement ready to be written for an engine. Knows no engine's format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.dispatch import check_placement
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
