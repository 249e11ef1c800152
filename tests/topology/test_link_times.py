"""The busiest link of an exchange on a whole torus, beside a walk over all links."""

import numpy as np
import pytest

from topology.load import load_cluster
from topology.routing.dimension import LinkTimes, exchange_loads
from topology.routing.spread import slowest


@pytest.mark.parametrize("name", ["tpu-v5e", "tpu-v6e", "tpu-v4"])
def test_links_priced_together_are_as_slow_as_one_by_one(name):
    fabric = load_cluster(name).domains[0].fabric
    times = LinkTimes(fabric.axes, fabric.graph, fabric.ports)
    rng = np.random.default_rng(0)
    for _ in range(6):
        count = int(rng.integers(2, 24))
        members = tuple(sorted(rng.choice(len(fabric.chips), count, replace=False).tolist()))
        loads = fabric._in_turn(exchange_loads(fabric.axes, members), members)
        seconds, link = times.slowest(members)
        assert seconds == pytest.approx(slowest(fabric.graph, loads)[0], rel=1e-12)
        ends = tuple(link.split("--"))
        each = fabric.graph.edges[ends]["bytes_per_s"]
        assert loads[ends] / each == pytest.approx(seconds, rel=1e-12)
