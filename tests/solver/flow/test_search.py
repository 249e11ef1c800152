"""Layers by machine: the published clusters, slow links, time limits, and questions without an answer."""

from __future__ import annotations

from itertools import product

import pytest

from costmodel.flow.judge import tokens_per_s
from costmodel.flow.question import FlowQuestion, load_flow
from solver.clock import Clock
from solver.flow.cover import Cover
from solver.flow.groups import groups_of, kinds_of
from solver.flow.search import FlowSearch, judged, place_layers
from tests.solver.flow.enumerated_flows import tiny
from topology.errors import InstanceError, NoFeasibleLayout

#: cluster, tokens/s that a plan found apart from this project reaches, gap
KNOWN = [
    ("helix-single24", 2045.64, 1e-6),
    ("helix-quality10", 286.587, 1e-6),
    ("helix-distributed24", 1754.38, 0.2),
    ("helix-heterogeneous42", 5905.78, 0.1),
]


@pytest.mark.parametrize(("name", "value", "gap"), KNOWN)
def test_published_clusters_are_served_as_well_as_is_known_with_a_small_gap(
    name: str, value: float, gap: float
) -> None:
    question = load_flow(name)
    found = place_layers(question)
    assert found.tokens_per_s >= value
    assert found.gap is not None
    assert found.gap <= gap
    assert found.tokens_per_s == tokens_per_s(question, found.placement)
    assert found.bound_tokens_per_s <= found.plain_bound_tokens_per_s


def test_the_bound_is_the_best_pattern_of_a_case_by_hand() -> None:
    """Three alike, two layers: 90 tokens/s with one layer, 40 with two."""
    question = FlowQuestion.model_validate(
        {
            "name": "x",
            "model": {"name": "m", "layers": 2, "activation_bytes": 1},
            "machines": {"a": {"tokens_per_s": [90, 40]}},
            "nodes": ["a", "a", "a"],
            "links": {"between": 1e6, "source": 1e6, "sink": 1e6},
        }
    )
    cover = Cover(kinds_of(question), 2, clock=Clock())
    assert cover.plain == 3 * 90 / 2
    # a layer has 1.5 machines: one with a layer of its own and one that holds both pass 90 + 40
    assert cover.tighten() == pytest.approx(130)
    found = place_layers(question)
    assert found.tokens_per_s == pytest.approx(130)
    assert found.optimal


def test_nodes_of_a_room_are_joined_by_links_that_cannot_be_full() -> None:
    question = load_flow("helix-distributed24")
    kinds = kinds_of(question)
    groups = groups_of(question, kinds, 2046.0)
    rooms = {
        room: sorted(n for group in groups if group.room == room for n in group.nodes)
        for room in {group.room for group in groups}
    }
    assert list(rooms.values()) == [[*range(4)], [*range(4, 14)], [*range(14, 24)]]
    for room in rooms.values():
        for one, other in product(room, room):
            assert one == other or question.link(one, other) >= 2046.0


def test_a_search_that_may_not_go_on_has_a_placement_and_a_true_bound() -> None:
    question = load_flow("helix-heterogeneous42")
    clock = Clock()
    clock.stop()
    found = FlowSearch(question, clock=clock).run()
    assert 0 < found.tokens_per_s <= found.bound_tokens_per_s
    assert found.bound_tokens_per_s >= 5905.78


def test_the_same_seed_gives_the_same_placement() -> None:
    question = load_flow("helix-distributed24")
    first = place_layers(question, seed=3, gap=0.2)
    assert first.placement == place_layers(question, seed=3, gap=0.2).placement


def test_a_given_placement_is_judged_beside_the_bound() -> None:
    question = load_flow("helix-quality10")
    placement = {node: (6 * node, 6 * node + 5) for node in range(10)}
    found = judged(question, placement)
    assert found.tokens_per_s == tokens_per_s(question, placement)
    assert found.optimal
    with pytest.raises(InstanceError, match="node 0"):
        judged(question, {0: (0, 59)})


def test_too_few_machines_are_named_as_the_reason() -> None:
    question = load_flow("helix-quality10")
    few = question.model_copy(update={"nodes": question.nodes[:3]})
    with pytest.raises(
        NoFeasibleLayout, match=r"all nodes together hold 25 layers; llama1-30b has 60"
    ):
        place_layers(few)


@pytest.mark.parametrize("seed", range(10))
def test_more_machines_and_faster_links_never_lower_the_bound(seed: int) -> None:
    question = tiny(seed)
    layers = question.model.layers
    kinds = kinds_of(question)
    bound = Cover(kinds, layers, clock=Clock()).tighten()
    more = question.model_copy(
        update={
            "nodes": (*question.nodes, question.nodes[0]),
            "links": question.links.model_copy(update={"between": 1e9, "source": 1e9, "sink": 1e9}),
        }
    )
    assert Cover(kinds_of(more), layers, clock=Clock()).tighten() >= bound * (1 - 1e-6)
