"""Stages take every layer exactly once, in order."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.layout.layout import Layout, Stage
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation

STRUCTURE = True


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Replicas whose stages leave out, repeat or reorder layers."""
    wanted = list(range(len(instance.model.layers)))
    violations = []
    for index, replica in enumerate(layout.replicas):
        if _in_order(replica.stages, len(wanted)):
            continue
        place = f"replicas[{index}]"
        beyond = [stage.layers for stage in replica.stages if stage.layers[1] >= len(wanted)]
        if beyond:
            message = f"layers {beyond[0][0]}-{beyond[0][1]}; the model has 0-{len(wanted) - 1}"
            violations.append(Violation("layers_covered", place, message))
            continue
        taken = [
            layer
            for stage in replica.stages
            for layer in range(stage.layers[0], stage.layers[1] + 1)
        ]
        if taken != wanted:
            missing = sorted(set(wanted) - set(taken))
            message = f"stages take {len(taken)} layers, the model has {len(wanted)} in order"
            if missing:
                message += f"; missing {missing[:5]}"
            violations.append(Violation("layers_covered", place, message))
        if any(stage.layers[0] > stage.layers[1] for stage in replica.stages):
            violations.append(Violation("layers_covered", place, "a stage has no layer"))
    return violations


def _in_order(stages: Sequence[Stage], num_layers: int) -> bool:
    """Whether every stage goes on where the one before it ended, to the last layer."""
    following = 0
    for stage in stages:
        first, last = stage.layers
        if not following == first <= last:
            return False
        following = last + 1
    return following == num_layers
