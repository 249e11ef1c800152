"""Expert maps whose layers share a total of slots, for the shapes of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import ExpertMap
from costmodel.question.instance import Instance
from solver.experts import place_layers
from solver.experts.layer_slots import (
    Choice,
    SlotShares,
    even_spread,
    on_chips,
    place_choices,
    slot_choices,
    staggered,
)
from solver.place.placements import Placements

Array = NDArray[np.float64]
#: slots on each chip of the layers, by layer
LayerSlots = dict[int, tuple[int, ...]]
#: seconds of layers by number, with these slots on the chips and these experts
LayerSeconds = Callable[[tuple[int, ...], ExpertMap], Array]

#: totals tried within a shape's range, as parts of it
_PARTS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)


class SharedPlacements:
    """Expert maps whose layers share a total of slots; what is placed once is remembered."""

    def __init__(self, instance: Instance, placements: Placements):
        self.instance = instance
        self.placements = placements
        self._choices: dict[tuple[int, int], list[Choice]] = {}
        self._rows: dict[tuple[int, int], dict[int, tuple[int, ...]]] = {}

    def tries(
        self, chips: int, fewest: int, slots: int, seconds: LayerSeconds
    ) -> Iterator[tuple[LayerSlots, ExpertMap]]:
        """Slots and experts of all MoE layers, for totals above ``fewest`` and up to ``slots`` to a layer.

        ``seconds``: time of every layer that a map names, all with the same slots on the chips.
        """
        layers = self.instance.operations.moe_layers
        choices = self._placed_choices(chips, slots)
        if not choices:
            return
        spent = np.full((len(layers), len(choices)), np.inf)
        for place, choice in enumerate(choices):
            names = [layers[row] for row in choice.layers.tolist()]
            maps = {k: tuple(row) for k, row in zip(names, choice.rows.tolist(), strict=True)}
            spent[choice.layers, place] = seconds(choice.slots_per_chip, maps)[names]
        counts_tried = [sum(choice.slots_per_chip) for choice in choices]
        shares = SlotShares.of(spent, counts_tried, len(layers) * slots)
        seen = set()
        for part in _PARTS:
            total = len(layers) * fewest + round(len(layers) * (slots - fewest) * part)
            if total < len(layers) * counts_tried[0]:
                continue
            counts = shares.choose(total)
            if counts in seen or sum(counts) <= len(layers) * fewest < len(layers) * slots:
                continue  # or of the range below
            seen.add(counts)
            rows = [self._row(chips, count, layer) for layer, count in self._placed(chips, counts)]
            held = staggered(counts, chips)
            experts = {
                layer: on_chips(row, own)
                for layer, row, own in zip(layers, rows, held, strict=True)
            }
            yield dict(zip(layers, held, strict=True)), experts

    def _placed_choices(self, chips: int, slots: int) -> list[Choice]:
        """The layers with every number of slots that is tried."""
        key = (chips, slots)
        if key not in self._choices:
            loads = self.instance.expert_loads
            rows = self.instance.scenario.layer_slots == "rows"
            counts = slot_choices(loads.shape[1], chips, slots, rows=rows)
            placed = place_choices(loads, chips, counts, seed=self.placements.seed)
            self._choices[key] = list(placed)
        return self._choices[key]

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
                hot_copies=self.placements.hot_copies,
            )
            experts = self.placements.covered(
                loads[fresh], placed.physical_to_logical, even_spread(count, chips)
            )
            known |= {n: tuple(row) for n, row in zip(fresh, experts.tolist(), strict=True)}
        return list(enumerate(counts))

    def _row(self, chips: int, count: int, layer: int) -> tuple[int, ...]:
        return self._rows[chips, count][layer]
