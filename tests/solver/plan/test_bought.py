"""Units that were bought, each taken away: every different loss once, with all replicas that the unit touches."""

from __future__ import annotations

from benchmarks.plan.bought import without_each
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from solver.clock import Clock
from solver.search import search


def test_each_different_loss_takes_its_units_replicas() -> None:
    asked = {"model": "llama-3.1-8b", "cluster": "hgx-h100@3", "workload": "chat", "pay": "whole"}
    instance = resolve_instance(Scenario.model_validate(asked))
    layout = search(instance, clock=Clock(), gap=0.05).layout
    nodes = [{placed.id for placed in instance.cluster.chips[at : at + 8]} for at in (0, 8, 16)]
    touching = [
        [i for i, one in enumerate(layout.replicas) if not node.isdisjoint(one.chips)]
        for node in nodes
    ]
    found = list(without_each(instance, layout, 3))
    assert sum(alike for alike, _ in found) == 3
    for _, left in found:
        gone = [i for i, one in enumerate(layout.replicas) if one not in left.replicas]
        assert gone in touching
        assert gone
