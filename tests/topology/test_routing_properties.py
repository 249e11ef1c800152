"""Properties of routes, loads and bounds on random graphs and random groups."""

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology import build_cluster
from topology.collectives.demand import KINDS
from topology.routing.cuts import broadcast_seconds, gather_seconds
from topology.routing.spread import slowest, spread
from topology.spec import ClusterSpec

relaxed = settings(max_examples=25, deadline=None, derandomize=True)


@st.composite
def graphs(draw):
    """A connected directed graph with links alike in both directions and random widths."""
    count = draw(st.integers(3, 9))
    graph = nx.DiGraph()

    def join(a, b):
        rate = draw(st.sampled_from([1.0, 2.0, 3.5, 10.0]))
        for u, v in ((a, b), (b, a)):
            graph.add_edge(f"g{u}", f"g{v}", bytes_per_s=rate, latency_s=1e-6, links=1)

    for node in range(1, count):
        join(node, draw(st.integers(0, node - 1)))
    extra = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    for a, b in draw(st.lists(extra, max_size=8)):
        if a != b and not graph.has_edge(f"g{a}", f"g{b}"):
            join(a, b)
    return graph


@st.composite
def demands(draw, graph):
    nodes = sorted(graph)
    pair = st.tuples(st.sampled_from(nodes), st.sampled_from(nodes), st.floats(0.1, 5))
    return draw(st.lists(pair, min_size=1, max_size=12))


@given(st.data())
@relaxed
def test_flow_is_conserved_at_every_node(data):
    graph = data.draw(graphs())
    wanted = data.draw(demands(graph))
    loads = spread(graph, wanted)
    for node in graph:
        sent = sum(amount for a, b, amount in wanted if a == node != b)
        got = sum(amount for a, b, amount in wanted if b == node != a)
        out = sum(load for (a, _), load in loads.items() if a == node)
        into = sum(load for (_, b), load in loads.items() if b == node)
        assert out - into == pytest.approx(sent - got, abs=1e-9)


@given(st.data())
@relaxed
def test_no_link_is_above_its_load_derived_time(data):
    graph = data.draw(graphs())
    loads = spread(graph, data.draw(demands(graph)))
    time, _ = slowest(graph, loads)
    for edge, load in loads.items():
        assert load / graph.edges[edge]["bytes_per_s"] <= time


@given(st.data())
@relaxed
def test_cuts_bound_every_route(data):
    graph = data.draw(graphs())
    nodes = sorted(graph)
    shard = 1 / len(nodes)
    pairs = [(a, b, shard) for a in nodes for b in nodes if a != b]
    time, _ = slowest(graph, spread(graph, pairs))
    assert gather_seconds(graph, nodes) <= time * (1 + 1e-9)
    chain = [(nodes[0], b, 1.0) for b in nodes[1:]]
    assert broadcast_seconds(graph, nodes) <= slowest(graph, spread(graph, chain))[0] * (1 + 1e-9)
    # every chip must take in the other shards: the simplest cut is never above the best one
    narrow = min(sum(r for _, _, r in graph.in_edges(n, data="bytes_per_s")) for n in nodes)
    assert gather_seconds(graph, nodes) >= (1 - shard) / narrow * (1 - 1e-9)


@given(st.data())
@relaxed
def test_a_wider_link_never_slows_a_cut(data):
    graph = data.draw(graphs())
    nodes = sorted(graph)
    before = gather_seconds(graph, nodes)
    a, b = data.draw(st.sampled_from(sorted(graph.edges)))
    for edge in ((a, b), (b, a)):
        graph.edges[edge]["bytes_per_s"] *= 2
    assert gather_seconds(graph, nodes) <= before * (1 + 1e-9)


def test_all_pairs_on_a_grid_take_no_less_than_its_cut():
    """3x3 chips, unit links: a column of three sends to six others over three links."""
    graph = nx.DiGraph()
    for row in range(3):
        for column in range(3):
            for down, right in ((0, 1), (1, 0)):
                if row + down < 3 and column + right < 3:
                    a, b = f"g{3 * row + column}", f"g{3 * (row + down) + column + right}"
                    graph.add_edge(a, b, bytes_per_s=1.0, latency_s=0.0, links=1)
                    graph.add_edge(b, a, bytes_per_s=1.0, latency_s=0.0, links=1)
    nodes = sorted(graph)
    pairs = [(a, b, 1.0) for a in nodes for b in nodes if a != b]
    time, _ = slowest(graph, spread(graph, pairs))
    cut = 3 * 6 / 3
    assert cut <= time <= 2 * cut


FABRICS = [
    ({"kind": "nvswitch", "links_per_switch": [2, 1, 1]}, "h100", 6),
    ({"kind": "mesh"}, "mi300x", 6),
    ({"kind": "torus", "shape": [4, 4], "wrap": "all"}, "tpu-v5e", 16),
    ({"kind": "torus", "shape": [3, 2, 2], "wrap": "none"}, "tpu-v4", 12),
    ({"kind": "two-layer", "chips_per_group": 4, "planes": 2, "second_layer": 2}, "b200", 8),
]


def clusters(fabric, chip, chips, nic=1.0, spread_over=1.0):
    spec = {
        "name": "random",
        "domains": [
            {
                "fabric": fabric,
                "chips": [{"chip": chip, "count": chips, "nic_bytes_per_s": 50e9 * nic}],
                "count": 3,
            }
        ],
        "scale_out": {"kind": "leaf-spine", "oversubscription": spread_over},
    }
    return build_cluster(ClusterSpec.model_validate(spec), "random")


@given(
    st.sampled_from(FABRICS),
    st.sampled_from([kind for kind in KINDS if kind != "send"]),
    st.data(),
)
@relaxed
def test_bounds_monotony_and_order_for_random_groups(choice, kind, data):
    cluster = clusters(*choice)
    names = [chip.id for chip in cluster.chips]
    ids = data.draw(st.lists(st.sampled_from(names), min_size=2, max_size=12, unique=True))
    if choice[0]["kind"] == "torus" and kind not in ("all-to-all", "dispatch"):
        ids = [f"{name.split('g')[0]}g{k}" for name in ids[:2] for k in range(choice[2])]
        ids = list(dict.fromkeys(ids))
    options = {"top_k": 4} if kind == "dispatch" else {}
    rate = cluster.rate(kind, ids, **options)
    for size in (0.0, 1e3, 1e6, 1e9):
        assert rate.bound(size) <= rate.time(size) * (1 + 1e-12)
    faster = clusters(*choice, nic=2.0).rate(kind, ids, **options)
    assert faster.s_per_byte <= rate.s_per_byte * (1 + 1e-12)
    slower = clusters(*choice, spread_over=4.0).rate(kind, ids, **options)
    assert slower.s_per_byte >= rate.s_per_byte * (1 - 1e-12)
    if kind != "broadcast":
        turned = cluster.rate(kind, list(reversed(ids)), **options)
        assert turned.s_per_byte == pytest.approx(rate.s_per_byte, rel=1e-12, abs=0)
