"""How unevenly routed tokens fall on the chips of a stage under a layout's expert maps, by layer and by chip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.moe_load import expert_shares
from costmodel.layout.layout import Layout, Stage
from costmodel.question.instance import Instance


@dataclass(frozen=True)
class StageLoad:
    """``load [layers, chips]``: a chip's routed tokens over the stage's mean, by MoE layer."""

    layers: tuple[int, ...]
    load: NDArray[np.float64]


def stage_load(instance: Instance, layout: Layout, stage: Stage) -> StageLoad | None:
    """Expected load of each chip of a stage; ``None`` where it has no routed experts."""
    first, last = stage.layers
    rows = [r for r, layer in enumerate(instance.operations.moe_layers) if first <= layer <= last]
    if not rows or not any(stage.slots()):
        return None
    layers = tuple(instance.operations.moe_layers[row] for row in rows)
    maps = layout.experts_of(stage)
    load = np.zeros((len(layers), len(stage.chips)))
    alike: dict[tuple[int, ...], list[int]] = {}
    for place, layer in enumerate(layers):
        alike.setdefault(stage.slots(layer), []).append(place)
    for slots, places in alike.items():
        experts = np.array([maps[layers[place]] for place in places], dtype=np.int64)
        loads = instance.expert_loads[[rows[place] for place in places]]
        # how many experts a token wants is no part of how its visits are shared out
        load[places] = expert_shares(loads, experts, slots, 1.0, 1.0).load
    return StageLoad(layers, load * len(stage.chips))
