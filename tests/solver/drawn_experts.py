"""Experts of a replica drawn by chance: how many slots its chips have, and which expert lies in each.

Shares nothing with the search.
"""

from __future__ import annotations

import numpy as np

from costmodel.layout.layout import ExpertMap
from costmodel.question.instance import Instance

#: columns of a slice of an expert, at least
_NARROWEST = 128


def drawn_experts(
    instance: Instance, rng: np.random.Generator, chips: int
) -> tuple[int | tuple[int, ...] | None, ExpertMap]:
    """Slots of the chips, and an expert for each: by load, each to the chip with least so far."""
    moe = instance.operations.moe
    if moe is None:
        return None, {}
    experts = moe.num_experts
    if chips > 1 and moe.expert_width >= _NARROWEST * chips and rng.random() < 0.35:
        return 0, {}
    total = experts
    if chips > 1 and rng.random() < 0.7:
        total = chips * min(-(-experts // chips) + int(rng.random() < 0.3), experts)
    total = max(total, chips)
    sizes = [total // chips + (chip < total % chips) for chip in range(chips)]
    maps: ExpertMap = {}
    if rng.random() < 0.15:  # as engines that load no placement start
        row = tuple(slot % experts for slot in range(total))
        slots = sizes[0] if len(set(sizes)) == 1 else tuple(sizes)
        return slots, dict.fromkeys(instance.operations.moe_layers, row)
    by_load = rng.random() < 0.8
    for layer, loads in zip(instance.operations.moe_layers, instance.expert_loads, strict=True):
        hottest = np.argsort(-loads, kind="stable").tolist()
        copied = hottest[: total - experts] if total > experts else []
        order = hottest if by_load else rng.permutation(experts).tolist()
        held = _spread(order, copied, loads, sizes)
        if held is None:
            return (sizes[0] if len(set(sizes)) == 1 else tuple(sizes)), {}
        maps[layer] = tuple(expert for chip in held for expert in chip)
    return (sizes[0] if len(set(sizes)) == 1 else tuple(sizes)), maps


def _spread(
    order: list[int], copied: list[int], loads: np.ndarray, sizes: list[int]
) -> list[list[int]] | None:
    held: list[list[int]] = [[] for _ in sizes]
    weight = [0.0] * len(sizes)
    for expert in [*order, *copied]:
        free = [c for c, size in enumerate(sizes) if len(held[c]) < size]
        free = [c for c in free if expert not in held[c]]
        if not free:
            return None
        chip = min(free, key=lambda c: weight[c])
        held[chip].append(expert)
        weight[chip] += float(loads[expert]) / (1 + (expert in copied))
    return held
