"""How unevenly routed tokens fall on chips under a layout's expert maps, by layer and by chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.moe_load import expert_shares
from costmodel.layout.layout import Layout, Stage
from costmodel.question.instance import Instance
from rackfit.figures.chart import Chart, Series
from rackfit.figures.live import figure
from rackfit.quoting import markup
from rackfit.report.render import ReplicaGroup


@dataclass(frozen=True)
class StageLoad:
    """``load [layers, chips]``: a chip's routed tokens over the stage's mean, by MoE layer."""

    layers: tuple[int, ...]
    load: NDArray[np.float64]


def stage_load(instance: Instance, layout: Layout, stage: Stage) -> StageLoad | None:
    """Expected load of each chip of a stage; ``None`` where it has no routed experts."""
    first, last = stage.layers
    rows = [r for r, layer in enumerate(instance.operations.moe_layers) if first <= layer <= last]
    if not rows:
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


def expert_loads(instance: Instance, layout: Layout, groups: Sequence[ReplicaGroup]) -> str:
    """Section of a report: the busiest chip of each MoE layer, for each kind of replica."""
    series = []
    for replica, _, _ in groups:
        points: list[tuple[float | str, float]] = []
        for stage in replica.stages:
            found = stage_load(instance, layout, stage)
            if found is not None and len(stage.chips) > 1:
                busiest = found.load.max(axis=1)
                points += [(n, float(x)) for n, x in zip(found.layers, busiest, strict=True)]
        if points:
            name = f"{replica.role} on {len(replica.chips)} chips"
            series.append(Series(name, points))
    if not series:
        return ""
    chart = Chart("Busiest chip of each layer", "layer", "its routed tokens over the mean", series)
    noisy = any(
        instance.profile.for_chip(chip).routing_noise > 0 for chip in instance.cluster.chip_names
    )
    drawn = " The few tokens of one pass fall less evenly, and are priced so." if noisy else ""
    basis = f"{instance.expert_loads_provenance}: {instance.workload.expert_load}"
    return (
        f"<h2>Expert load</h2><p>1 is perfect balance. Load of the experts is {markup(basis)}.{drawn}</p>"
        f"{figure(chart)}"
    )
