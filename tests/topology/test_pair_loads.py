"""Loads of all pairs at once are those of each message walked on its own."""

import random

import pytest
import yaml

from topology import load_cluster
from topology.routing.pair_loads import PairLoads
from topology.routing.spread import spread


@pytest.mark.parametrize("seed", range(6))
def test_pair_loads_equal_walked_messages(seed, tmp_path):
    draw = random.Random(seed)
    shape = draw.choice([[3, 4], [4, 4], [2, 2, 3]])
    count = 12 if shape != [4, 4] else 16
    axis = [f"{draw.randint(20, 90)} GB/s" for _ in shape]
    fabric = {"kind": "torus", "shape": shape, "wrap": draw.choice(["none", "all"])}
    dead = draw.sample(range(count), 2)
    spec = {
        "name": "hurt",
        "domains": [
            {
                "fabric": {**fabric, "axis_bytes_per_s": axis},
                "chips": [{"chip": "tpu-v5e", "count": count}],
            }
        ],
        "failed": [f"r0g{chip}" for chip in dead],
    }
    path = tmp_path / "hurt.yaml"
    path.write_text(yaml.safe_dump(spec))
    fabric = load_cluster(str(path)).domains[0].fabric
    pairs = PairLoads(fabric.graph)
    members = sorted(max(fabric.parts, key=len))
    group = [f"g{position}" for position in draw.sample(members, min(6, len(members)))]
    messages = [(a, b, 1 / len(group)) for a in group for b in group if a != b]
    walked = {edge: load for edge, load in spread(fabric.graph, messages).items() if load}
    assert pairs.of(group) == pytest.approx(walked)
    for a, b in ((a, b) for a in group for b in group if a != b):
        assert pairs.one(a, b) == pytest.approx(spread(fabric.graph, [(a, b, 1.0)]))
    inside = {edge: 1 if set(edge) <= set(group) else 4 for edge in walked}
    times = {
        edge: inside[edge] * load / fabric.graph.edges[edge]["bytes_per_s"]
        for edge, load in walked.items()
    }
    slowest, name = pairs.slowest(group, 4)
    assert slowest == pytest.approx(max(times.values()))
    assert times[name.split("--")[0], name.split("--")[1]] == pytest.approx(slowest)
