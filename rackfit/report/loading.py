"""What chips must load to go from one layout to another: bytes of weights, and how long that takes."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance


@dataclass(frozen=True)
class Loading:
    """``total_bytes`` over all chips; ``seconds`` of the slowest chip from its host's memory.

    ``None``: the host bandwidth of some chip is not known. Disks and networks that feed the hosts may be slower.
    """

    total_bytes: float
    seconds: float | None

    def words(self) -> str:
        """The same as a line."""
        took = "" if self.seconds is None else f", {self.seconds:.1f} s from host memory at least"
        return f"{self.total_bytes / 1e9:,.1f} GB of weights have to be loaded{took}"


def loading(
    before: Layout, instance: Instance, after: Layout, evaluation: Evaluation, *, same_model: bool
) -> Loading:
    """Weights that each chip of ``after`` holds and does not hold in ``before``.

    A chip that keeps its layers and its shard keeps its other weights; of experts it loads the new ones.
    """
    had = held_experts(before) if same_model else {}
    shards = _shards(before) if same_model else {}
    now, own = held_experts(after), _shards(after)
    expert_bytes = {
        layer: kind.moe.expert_bytes
        for kind in instance.operations.kinds
        if kind.moe is not None
        for layer in kind.layers
    }
    total, slowest, known = 0.0, 0.0, True
    for replica, price in zip(after.replicas, evaluation.priced.replicas, strict=True):
        for stage, stage_price in zip(replica.stages, price.stages, strict=True):
            for place, chip in enumerate(stage.chips):
                fresh = now.get(chip, set()) - had.get(chip, set())
                size = sum(expert_bytes[layer] for layer, _ in fresh)
                if shards.get(chip) != own[chip]:
                    size += float(stage_price.memory["weights"][place])
                rate = instance.cluster.chip(chip).chip.host_bytes_per_s
                known = known and (rate is not None or not size)
                slowest = max(slowest, size / rate if rate else 0.0)
                total += size
    return Loading(total, slowest if known else None)


def held_experts(layout: Layout) -> dict[str, set[tuple[int, int]]]:
    """Experts by (layer, expert) on each chip."""
    found: dict[str, set[tuple[int, int]]] = {}
    for replica in layout.replicas:
        for stage in replica.stages:
            first, last = stage.layers
            for layer, row in layout.experts_of(stage).items():
                if not first <= layer <= last:
                    continue
                start = 0
                for chip, count in zip(stage.chips, stage.slots(layer), strict=True):
                    held = found.setdefault(chip, set())
                    held.update((layer, expert) for expert in row[start : start + count])
                    start += count
    return found


def _shards(layout: Layout) -> dict[str, tuple[object, ...]]:
    """Layers of each chip and its part of their attention and dense weights."""
    return {
        chip: (stage.layers, replica.shape.tp, place % replica.shape.tp)
        for replica in layout.replicas
        for stage in replica.stages
        for place, chip in enumerate(stage.chips)
    }
