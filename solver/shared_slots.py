"""Expert maps whose layers share a total of slots, for the shapes of a search."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from costmodel.instance import Instance
from costmodel.layout import ExpertMap
from solver.experts import place_layers
from solver.experts.layer_slots import (
    SlotShares,
    busiest_shares,
    even_spread,
    on_chips,
    slot_choices,
    staggered,
)
from solver.placements import Placements

Array = NDArray[np.float64]
#: slots on each chip of the layers, by layer
LayerSlots = dict[int, tuple[int, ...]]

#: totals tried within a shape's range, as parts of it
_PARTS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)


class SharedPlacements:
    """Expert maps whose layers share a total of slots; what is placed once is remembered."""

    def __init__(self, instance: Instance, placements: Placements):
        self.instance = instance
        self.placements = placements
        self._shares: dict[tuple[int, int], SlotShares] = {}
        self._rows: dict[tuple[int, int], dict[int, tuple[int, ...]]] = {}

    def tries(self, chips: int, fewest: int, slots: int) -> Iterator[tuple[LayerSlots, ExpertMap]]:
        """Slots and experts of all MoE layers, for totals above ``fewest`` and up to ``slots`` to a layer."""
        layers = self.instance.operations.moe_layers
        seen = set()
        for part in _PARTS:
            total = len(layers) * fewest + round(len(layers) * (slots - fewest) * part)
            counts = self._counts(chips, slots, total)
            if counts is None or counts in seen:
                continue
            if sum(counts) <= len(layers) * fewest < len(layers) * slots:
                continue  # belongs to the range below
            seen.add(counts)
            rows = [self._row(chips, count, layer) for layer, count in self._placed(chips, counts)]
            held = staggered(counts, chips)
            maps = {
                layer: on_chips(row, own)
                for layer, row, own in zip(layers, rows, held, strict=True)
            }
            yield dict(zip(layers, held, strict=True)), maps

    def _counts(self, chips: int, slots: int, total: int) -> tuple[int, ...] | None:
        """The best share of a total; ``None`` where it is too small."""
        loads = self.instance.expert_loads
        if (chips, slots) not in self._shares:
            rows = self.instance.scenario.layer_slots == "rows"
            choices = slot_choices(loads.shape[1], chips, slots, rows=rows)
            if not choices:
                return None
            busiest = busiest_shares(loads, chips, choices, seed=self.placements.seed)
            self._shares[chips, slots] = SlotShares.of(busiest, choices, len(loads) * slots)
        shares = self._shares[chips, slots]
        if total < len(loads) * int(shares.choices[0]):
            return None
        return shares.choose(total)

    def _placed(self, chips: int, counts: tuple[int, ...]) -> list[tuple[int, int]]:
        """Rows of the loads with their slots, each placed by now."""
        loads, clock = self.instance.expert_loads, self.placements.clock
        for count in sorted(set(counts)):
            known = self._rows.setdefault((chips, count), {})
            fresh = [n for n, own in enumerate(counts) if own == count and n not in known]
            if not fresh:
                continue
            limit = clock.remaining_s
            placed = place_layers(
                loads[fresh],
                even_spread(count, chips),
                time_limit_s=None if limit == float("inf") else max(limit / 8, 0.1),
                seed=self.placements.seed,
            )
            experts = self.placements.covered(
                loads[fresh], placed.physical_to_logical, even_spread(count, chips)
            )
            known |= {n: tuple(row) for n, row in zip(fresh, experts.tolist(), strict=True)}
        return list(enumerate(counts))

    def _row(self, chips: int, count: int, layer: int) -> tuple[int, ...]:
        return self._rows[chips, count][layer]
