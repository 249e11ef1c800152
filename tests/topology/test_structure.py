"""Structure of every builder against figures worked out here from the published wiring."""

from collections import Counter

import networkx as nx
import pytest

from topology import cluster_names, load_cluster

GB = 1e9
#: name: chips, switches, merged links, links per chip, bisection GB/s, hops between farthest chips
EXPECTED = {
    "hgx-h100": (8, 4, 8 * 4, 18, 4 * 450, 2),
    "hgx-b200": (8, 2, 8 * 2, 18, 4 * 900, 2),
    "gb200-nvl72": (72, 18, 72 * 18, 18, 36 * 900, 2),
    "vr-nvl72": (72, 36, 72 * 36, 36, 36 * 1500, 2),
    "nvl144": (144, 36, 144 * 36, 36, 72 * 1800, 2),
    "nvl-20": (20, 18, 20 * 18, 18, 10 * 900, 2),
    "helios-72": (72, 12, 72 * 12, 12, 36 * 1800, 2),
    "mi300x": (8, 0, 28, 7, 16 * 64, 1),
    "mi355x": (8, 0, 28, 7, 16 * 76.8, 1),
    "gaudi3": (8, 0, 28, 21, 16 * 75, 1),
    "tpu-v4-4x4x4": (64, 0, 3 * 64, 6, 2 * 16 * 45, 6),
    "tpu-v5p-4x4x8": (128, 0, 3 * 128, 6, 2 * 16 * 90, 8),
    "tpu-v5p-2x2x4": (16, 0, 8 + 8 + 12, 4, 4 * 90, 5),
    "tpu-v5e-16x16": (256, 0, 2 * 256, 4, 2 * 16 * 45, 16),
    "tpu-v5e-8x16": (128, 0, 128 + 7 * 16, 4, 2 * 8 * 45, 15),
    "tpu-v6e-4x4": (16, 0, 24, 4, 4 * 100, 6),
    "trn2": (16, 0, 32, 4, 2 * 4 * 128, 4),
    "trn2-ultraserver": (64, 0, 192, 6, 2 * 16 * 64, 6),
    "cloudmatrix384": (384, 48 * 7 + 7 * 16, 384 * 7 + 48 * 7 * 16, 14, 192 * 392, 4),
    "nvl576": (576, 8 * 36 + 36 * 8, 576 * 36 + 8 * 36 * 8, 36, 288 * 1800, 4),
}


TWO_LAYERS = ("cloudmatrix384", "nvl576")


def fabric_graph(cluster):
    domain = cluster.domains[0]
    nodes = (n for n, home in cluster.graph.nodes(data="domain") if home == domain.index)
    return cluster.graph.subgraph(nodes)


def halves(cluster, name):
    """Two halves of the chips across the narrowest seam: the longest (or slowest) axis."""
    chips = [chip.id for chip in cluster.chips]
    if name == "tpu-v5e-8x16":
        return [c for i, c in enumerate(chips) if i % 16 < 8], [
            c for i, c in enumerate(chips) if i % 16 >= 8
        ]
    if name in ("tpu-v5p-4x4x8", "tpu-v5p-2x2x4"):
        side = int(name[-1])
        near = [c for i, c in enumerate(chips) if i % side < side // 2]
        return near, [c for c in chips if c not in set(near)]
    return chips[: len(chips) // 2], chips[len(chips) // 2 :]


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in TWO_LAYERS])
def test_counts_degree_bisection_and_diameter(name):
    num_chips, switches, links, degree, bisection, diameter = EXPECTED[name]
    cluster = load_cluster(name)
    graph = fabric_graph(cluster)
    chips = [chip.id for chip in cluster.chips]
    assert len(chips) == num_chips
    assert graph.number_of_nodes() == num_chips + switches
    assert graph.number_of_edges() == 2 * links
    wires = [graph.nodes[chip]["wires"] for chip in chips]
    if name in ("tpu-v5p-2x2x4", "tpu-v5e-8x16", "tpu-v6e-4x4"):
        assert max(wires) == degree
    else:
        assert set(wires) == {degree}
    far = max(nx.single_source_shortest_path_length(graph, chips[0])[chip] for chip in chips)
    assert far == diameter
    assert bisection_bytes_per_s(cluster, graph, name) == pytest.approx(bisection * GB, rel=1e-9)


def bisection_bytes_per_s(cluster, graph, name):
    near, far = halves(cluster, name)
    net = nx.DiGraph()
    net.add_weighted_edges_from(graph.edges(data="bytes_per_s"), weight="capacity")
    net.add_edges_from(("near", chip) for chip in near)
    net.add_edges_from((chip, "far") for chip in far)
    return nx.maximum_flow_value(net, "near", "far")


@pytest.mark.parametrize("name", TWO_LAYERS)
def test_two_layers_are_full(name):
    num_chips, switches, links, degree, bisection, _ = EXPECTED[name]
    cluster = load_cluster(name)
    graph = fabric_graph(cluster)
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (num_chips + switches, 2 * links)
    assert {graph.nodes[chip.id]["wires"] for chip in cluster.chips} == {degree}
    ups = [rate for a, b, rate in graph.edges(data="bytes_per_s") if "top" in b]
    assert sum(ups) / 2 == pytest.approx(bisection * GB)


@pytest.mark.parametrize("name", [n for n in cluster_names() if n not in ("nvl576",)])
def test_every_shipped_cluster_is_symmetric_connected_and_sourced(name):
    cluster = load_cluster(name)
    graph = cluster.graph
    assert nx.is_strongly_connected(graph)
    for a, b, data in graph.edges(data=True):
        assert graph.edges[b, a] == data
        assert data["bytes_per_s"] > 0
        assert data["latency_s"] > 0
    assert cluster.sources
    assert all(chip.chip.sources for chip in cluster.chips)
    for chip in cluster.chips:
        fabric = cluster.domains[chip.domain].fabric
        own = [link for link in graph.adj[chip.id] if ".nic" not in link]
        width = sum(graph.edges[chip.id, other]["bytes_per_s"] for other in own)
        assert width == pytest.approx(fabric.width(chip.position))


def test_superpod_unit_has_eight_leaves_and_full_bisection():
    cluster = load_cluster("hgx-h100@64")
    graph = cluster.graph
    leaves = {node for node, kind in graph.nodes(data="kind") if kind == "leaf"}
    spines = {node for node, kind in graph.nodes(data="kind") if kind == "spine"}
    assert (len(leaves), len(spines)) == (2 * 8, 16)
    for leaf in leaves:
        down = sum(d["bytes_per_s"] for _, n, d in graph.edges(leaf, data=True) if n not in spines)
        up = sum(d["bytes_per_s"] for _, n, d in graph.edges(leaf, data=True) if n in spines)
        assert down == pytest.approx(32 * 50 * GB)
        assert up == pytest.approx(down)


@pytest.mark.parametrize(
    ("name", "racks", "each"),
    [("gb200-nvl72@3", 3, 72), ("nvl576", 8, 72), ("cloudmatrix384", 48, 8),
     ("tpu-v4-4x8x8", 4, 64), ("tpu-v5e-4x4", 1, 16), ("hgx-h100@2", 2, 8)],
)  # fmt: skip
def test_chips_are_in_named_racks(name, racks, each):
    found = Counter(chip.rack for chip in load_cluster(name).chips)
    assert len(found) == racks
    assert set(found.values()) == {each}


@pytest.mark.parametrize(
    ("name", "wraps"),
    [
        ("tpu-v4-4x4x4", (True, True, True)),
        ("tpu-v5p-8x4x4", (True, True, True)),
        ("tpu-v5p-2x4x4", (False, False, False)),
        ("tpu-v7-2x2x1", (False, False, False)),
        ("tpu-v5e-16x8", (True, False)),
        ("tpu-v6e-8x8", (False, False)),
        ("trn2-ultraserver", (True, True, True)),
    ],
)
def test_wraparound_rules(name, wraps):
    assert load_cluster(name).domains[0].fabric.spec.wraps() == wraps
