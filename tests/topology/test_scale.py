"""The largest fabrics build whole, and are priced without walking them."""

import tracemalloc

import pytest

from topology import load_cluster

#: name: chips, nodes and directed edges of the graph with NICs, leaves and spines
LARGE = {
    "nvl576": (576, 576 * 2 + 8 * 36 + 36 * 8 + 1 + 16, 2 * (576 * 36 + 8 * 36 * 8 + 576 * 2 + 16)),
    "tpu-v4-16x16x16": (4096, 4096 * 2 + 1 + 16, 2 * (3 * 4096 + 4096 * 2 + 16)),
    "gb200-nvl72@64": (
        4608,
        4608 * 2 + 64 * 18 + 64 + 16,
        2 * (4608 * 18 + 4608 * 2 + 64 * 16),
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_clusters_build_whole(name):
    chips, nodes, edges = LARGE[name]
    cluster = load_cluster(name)
    graph = cluster.graph
    assert len(cluster.chips) == chips
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (nodes, edges)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_large_clusters_stay_below_a_gigabyte(name):
    tracemalloc.start()
    graph = load_cluster(name).graph
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert graph.number_of_nodes() == LARGE[name][1]
    assert peak < 1e9


@pytest.mark.parametrize("name", LARGE)
def test_pricing_a_shape_does_not_need_the_graph(name):
    cluster = load_cluster(name)
    domains, chips = len(cluster.domains), len(cluster.domains[0].chips)
    for kind in ("all-reduce", "all-gather", "all-to-all"):
        assert cluster.rate_for(kind, 0, chips, domains).s_per_byte > 0
    assert cluster.rate_for("dispatch", 0, chips, domains, top_k=8).s_per_byte > 0
    assert "graph" not in vars(cluster)
    assert all("graph" not in vars(domain.fabric) for domain in cluster.domains)
