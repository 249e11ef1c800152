"""Layers by machine: the published clusters, slow links, time limits, and questions without an answer."""

from __future__ import annotations

from itertools import product

import pytest

from costmodel.flow.judge import tokens_per_s
from costmodel.flow.question import FlowQuestion, load_flow
from solver.clock import Clock
from solver.flow.borders import Borders, shared_layers
from solver.flow.cover import Cover
from solver.flow.groups import groups_of, kinds_of
from solver.flow.search import SAME, FlowSearch, judged, place_layers
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


def test_slow_links_prove_the_plan_for_three_regions_to_be_the_best() -> None:
    """No layer beyond a region's own can be held by one machine: its links pass half of the flow."""
    question = load_flow("helix-distributed24")
    found = place_layers(question)
    assert found.optimal
    kinds = kinds_of(question)
    borders = Borders(question, kinds, clock=Clock())
    assert borders.exclude(found.tokens_per_s * (1 + SAME))
    assert not borders.exclude(found.tokens_per_s * (1 - SAME))
    # at once that much: 8 layers on an A100, 3 on an L4, 2 on a T4, and a shared layer at each of two borders
    assert shared_layers(question, kinds, 1800.0) == 2


def test_layers_that_machines_share_by_hand() -> None:
    """Two islands of two machines, each of which passes 50 with two layers and 30 with three; ten layers."""
    rows = [[1e6, 100.0, 100.0], [100.0, 100.0], [1e6]]
    question = FlowQuestion.model_validate(
        {
            "name": "x",
            "model": {"name": "m", "layers": 10, "activation_bytes": 10},
            "machines": {"a": {"tokens_per_s": [90, 50, 30]}},
            "nodes": ["a"] * 4,
            "links": {"between": rows, "source": 1e6, "sink": 1e6},
        }
    )
    kinds = kinds_of(question)
    # links of 10 tokens/s carry 8: one island of four machines, which holds 12 single layers
    assert shared_layers(question, kinds, 8.0) == 0
    # 20 does not cross: islands hold 6 single layers each, and one between them is shared
    assert shared_layers(question, kinds, 20.0) == 1
    # at 40 they hold 4 each: 2 of 10 are shared
    assert shared_layers(question, kinds, 40.0) == 2
    assert shared_layers(question, kinds, 95.0) == 10


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
