"""What weights each chip of a layout holds, and what of them another chip has already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.layout.layout import Layout, Stage
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from topology.errors import InstanceError, Problem

#: (layer, expert)
Experts = frozenset[tuple[int, int]]
#: first and last layer, over how many chips experts are cut, and which of the slices
Cut = tuple[tuple[int, int], int, int]


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights on one chip.

    ``shard``: equal where attention, dense and shared weights are the same, of which there are ``dense_bytes``;
    ``experts`` by (layer, expert), each once however many slots it has. ``cut``: equal where slices of all experts are the
    same, of which there are ``cut_bytes``; ``None`` where experts are whole.
    """

    shard: tuple[object, ...]
    dense_bytes: float
    experts: Experts
    cut: Cut | None = None
    cut_bytes: float = 0.0

    @property
    def part(self) -> float:
        """How much of each expert a slice is."""
        return 1.0 / self.cut[1] if self.cut else 0.0

    def slices(self, layer: int) -> bool:
        """Whether a slice of each of a layer's experts lies here."""
        return self.cut is not None and self.cut[0][0] <= layer <= self.cut[0][1]

    def fresh(self, there: Weights | None, expert_bytes: Mapping[int, float]) -> float:
        """Bytes of these weights that a chip which holds ``there`` does not hold."""
        missing = self.experts if there is None else self.experts - there.experts
        size = sum(expert_bytes.get(layer, 0.0) for layer, _ in missing)
        if there is None or self.shard != there.shard:
            size += self.dense_bytes
        if there is None or self.cut != there.cut:
            size += self.cut_bytes
        return size


def expert_bytes(instance: Instance) -> dict[int, float]:
    """Bytes of one expert of each mixture-of-experts layer."""
    return {
        layer: kind.moe.expert_bytes
        for kind in instance.operations.kinds
        if kind.moe is not None
        for layer in kind.layers
    }


def weights_by_chip(layout: Layout, priced: PricedLayout | None = None) -> dict[str, Weights]:
    """Weights of every chip in a replica; ``dense_bytes`` are 0 without prices. Equal chips share one object."""
    found: dict[str, Weights] = {}
    known: dict[object, Weights] = {}
    experts: dict[object, list[Experts]] = {}
    for at, replica in enumerate(layout.replicas):
        if replica.apart is not None:
            message = "a move does not take experts apart"
            raise InstanceError(Problem(f"replicas[{at}].apart", message))
        for number, stage in enumerate(replica.stages):
            alike = stage.expert_map, stage.layers, stage.slot_key
            if alike not in experts:
                experts[alike] = stage_experts(layout, stage)
            held = experts[alike]
            memory = priced.replicas[at].stages[number].memory if priced else None
            for place, chip in enumerate(stage.chips):
                shard = (stage.layers, replica.shape.tp, place % replica.shape.tp)
                size = 0.0 if memory is None else float(memory["weights"][place])
                cut: Cut | None = None
                slices = 0.0
                if replica.cuts_experts:
                    cut = (stage.layers, len(stage.chips), place)
                    slices = 0.0 if memory is None else float(memory["experts"][place])
                key = (shard, size, held[place], cut, slices)
                found[chip] = known.setdefault(key, Weights(shard, size, held[place], cut, slices))
    return found


def stage_experts(layout: Layout, stage: Stage) -> list[Experts]:
    """Experts of a stage's layers on each of its chips."""
    first, last = stage.layers
    held: list[set[tuple[int, int]]] = [set() for _ in stage.chips]
    for layer, row in layout.experts_of(stage).items():
        if not first <= layer <= last:
            continue
        start = 0
        for own, count in zip(held, stage.slots(layer), strict=True):
            own.update((layer, expert) for expert in row[start : start + count])
            start += count
    return [frozenset(own) for own in held]
