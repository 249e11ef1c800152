"""Chips of new replicas: the assignment that loads fewest bytes, and what a shuffled layout goes back to."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from costmodel.change.joined import joined, on_chips
from costmodel.change.loading import fresh_bytes
from costmodel.change.weights import expert_bytes, weights_by_chip
from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from solver.move.onto_chips import nearest_chips


def asked(cluster: str) -> Instance:
    return resolve_instance(Scenario(model="deepseek-v2-lite", cluster=cluster, workload="chat"))


def side_by_side(instance: Instance, chips: int) -> Layout:
    """Replicas of so many chips on all there are, their experts moved round by one slot from chip to chip."""
    parts = []
    for first in range(0, len(instance.cluster.chips), chips):
        one = plain_layout(
            instance, "mixed", tp=1, attention_dp=chips, batch=16 * chips, first_chip=first
        )
        maps = {
            name: {layer: (*row[first:], *row[:first]) for layer, row in rows.items()}
            for name, rows in one.expert_maps.items()
        }
        parts.append(one.model_copy(update={"expert_maps": maps}))
    return joined(parts)


def shuffled(instance: Instance, layout: Layout, seed: int) -> Layout:
    """The layout with domains exchanged, and chips of each."""
    rng = np.random.default_rng(seed)
    domains = instance.cluster.domains
    goals = rng.permutation(len(domains)).tolist()
    chips: dict[str, str] = {}
    for domain, goal in zip(domains, goals, strict=True):
        own = [placed.id for placed in domain.usable]
        there = rng.permutation([placed.id for placed in domains[goal].usable]).tolist()
        chips |= dict(zip(own, there, strict=True))
    return layout.model_copy(
        update={"replicas": tuple(on_chips(one, chips) for one in layout.replicas)}
    )


def load(instance: Instance, before: Layout, after: Layout) -> float:
    judged = evaluate(instance, after)
    return sum(fresh_bytes(before, instance, after, judged, same_model=True).values())


@pytest.mark.parametrize("seed", range(3))
def test_a_shuffled_layout_goes_back_to_its_chips(seed: int) -> None:
    instance = asked("hgx-h100@3")
    layout = side_by_side(instance, 4)
    other = shuffled(instance, layout, seed)
    assert load(instance, layout, other) > 0
    back = nearest_chips(instance, layout, other)
    assert load(instance, layout, back) == 0
    assert evaluate(instance, back).usd_per_hour == evaluate(instance, other).usd_per_hour


def test_the_assignment_is_the_least_of_all() -> None:
    instance = asked("hgx-h100")
    before = side_by_side(instance, 4)
    wide = side_by_side(instance, 8)
    found = load(instance, before, nearest_chips(instance, before, wide))
    each, had = expert_bytes(instance), weights_by_chip(before)
    wanted = weights_by_chip(wide, evaluate(instance, wide).priced)
    costs = np.array([[own.fresh(had[chip], each) for chip in had] for own in wanted.values()])
    least = min(
        sum(costs[row, column] for row, column in enumerate(order))
        for order in permutations(range(len(had)))
    )
    assert found == pytest.approx(least)


def test_replicas_that_stay_keep_their_chips() -> None:
    instance = asked("hgx-h100@2")
    layout = side_by_side(instance, 4)
    other = shuffled(instance, layout, 1)
    kept = nearest_chips(instance, layout, other, kept=(0, 2))
    assert kept != other
    for at in (0, 2):
        assert kept.replicas[at] == other.replicas[at]


def test_maps_of_one_name_and_other_contents_stay_apart() -> None:
    instance = asked("hgx-h100")
    layout = side_by_side(instance, 4)
    turned = {
        name: {layer: row[::-1] for layer, row in rows.items()}
        for name, rows in layout.expert_maps.items()
    }
    other = layout.model_copy(update={"expert_maps": turned})
    both = joined([layout, other])
    half = len(layout.replicas)
    for at, part in ((0, layout), (half, other)):
        ours, theirs = both.replicas[at], part.replicas[0]
        assert both.experts_of(ours.stages[0]) == part.experts_of(theirs.stages[0])
