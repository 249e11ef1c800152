"""The busiest chip of each MoE layer, drawn for each kind of replica of a layout."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from rackfit.documents.replica_groups import ReplicaGroup
from rackfit.figures.chart import Chart, Series
from rackfit.figures.live import figure
from rackfit.figures.stage_load import stage_load
from rackfit.quoting import markup
from rackfit.wording import counted


def expert_loads(instance: Instance, layout: Layout, groups: Sequence[ReplicaGroup]) -> str:
    """Section of a report: the busiest chip of each MoE layer, for each kind of replica."""
    series = []
    for replica, _, _ in groups:
        points: list[tuple[float | str, float]] = []
        for stage in replica.groups:
            found = stage_load(instance, layout, stage)
            if found is not None and len(stage.chips) > 1:
                busiest = found.load.max(axis=1)
                points += [(n, float(x)) for n, x in zip(found.layers, busiest, strict=True)]
        if points:
            name = f"{replica.role} on {counted(len(replica.chips), 'chip')}"
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
