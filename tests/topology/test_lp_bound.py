"""The best any routing could do (a linear program) against the bound and the route model.

Most of an all-to-all served per second over all ways to split every pair's traffic: one commodity
per source chip on the fabric's own graph, solved with GLOP.
"""

import pytest
from ortools.linear_solver import pywraplp

from topology import build_cluster, load_cluster
from topology.spec import ClusterSpec


def fabric_graph(cluster):
    domains = cluster.graph.nodes(data="domain")
    return cluster.graph.subgraph(node for node, home in domains if home == 0).copy()


def best_exchange_seconds(cluster):
    """Least seconds per byte sourced per chip, over all routings."""
    graph = fabric_graph(cluster)
    chips = [chip.id for chip in cluster.usable]
    solver = pywraplp.Solver.CreateSolver("GLOP")
    time = solver.NumVar(0, solver.infinity(), "time")
    flow = {
        (source, edge): solver.NumVar(0, solver.infinity(), "")
        for source in chips
        for edge in graph.edges
    }
    for source in chips:
        for node in graph:
            out = sum(flow[source, edge] for edge in graph.out_edges(node))
            into = sum(flow[source, edge] for edge in graph.in_edges(node))
            if node == source:
                solver.Add(out - into == (len(chips) - 1) / len(chips))
            else:
                solver.Add(into - out == (1 / len(chips) if node in chips else 0))
    for edge in graph.edges:
        rate = graph.edges[edge]["bytes_per_s"] / 1e9
        solver.Add(sum(flow[source, edge] for source in chips) <= rate * time)
    solver.Minimize(time)
    assert solver.Solve() == pywraplp.Solver.OPTIMAL
    return time.solution_value() * 1e-9


def hurt(name, *failed):
    spec = {
        "name": "hurt",
        "domains": [
            {
                "fabric": {"kind": "torus", "shape": [4, 4], "wrap": "all"},
                "chips": [{"chip": name, "count": 16}],
            }
        ],
        "failed": list(failed),
    }
    return build_cluster(ClusterSpec.model_validate(spec), "hurt")


@pytest.mark.parametrize("name", ["hgx-h100", "mi300x", "tpu-v5e-4x4", "trn2", "tpu-v5e-2x4"])
def test_routes_of_whole_fabrics_are_optimal(name):
    cluster = load_cluster(name)
    rate = cluster.rate("all-to-all", [chip.id for chip in cluster.usable])
    best = best_exchange_seconds(cluster)
    assert rate.bound_s_per_byte <= best * (1 + 1e-6)
    assert rate.s_per_byte == pytest.approx(best, rel=1e-6, abs=0)


@pytest.mark.parametrize("failed", [("r0g5",), ("r0g0--r0g1",), ("r0g0--r0g1", "r0g0--r0g4")])
def test_routes_of_hurt_tori_lie_between_the_optimum_and_twice_it(failed):
    cluster = hurt("tpu-v5e", *failed)
    rate = cluster.rate("all-to-all", [chip.id for chip in cluster.usable])
    best = best_exchange_seconds(cluster)
    assert rate.bound_s_per_byte <= best * (1 + 1e-6)
    assert best * (1 - 1e-6) <= rate.s_per_byte <= 2 * best
