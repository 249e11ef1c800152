"""How many domains a token reaches, by counting every outcome."""

from itertools import combinations, product

import pytest

from topology import load_cluster
from topology.collectives.demand import touched, touched_limited
from topology.errors import InstanceError


def counted(num_domains, top_k, limit):
    """Mean share of tokens that reach domain 0, over every choice of domains and destinations."""
    hits = total = 0
    for chosen in combinations(range(num_domains), limit):
        for copies in product(chosen, repeat=top_k):
            hits += 0 in copies
            total += 1
    return hits / total


@pytest.mark.parametrize(
    ("num_domains", "top_k", "limit"), [(4, 3, 2), (5, 4, 3), (4, 4, 4), (3, 2, 1)]
)
def test_reach_of_a_domain_equals_counting(num_domains, top_k, limit):
    found = touched_limited(1 / num_domains, top_k, num_domains, limit)
    assert found == pytest.approx(counted(num_domains, top_k, limit))


def test_unlimited_reach_is_the_plain_formula():
    assert touched_limited(1 / 8, 8, 8, 8) == touched(1 / 8, 8) == pytest.approx(1 - (7 / 8) ** 8)


def test_limited_groups_cut_the_traffic_between_nodes():
    cluster = load_cluster("hgx-h800@8")
    free = cluster.rate_for("dispatch", 0, 8, 8, top_k=8)
    limited = cluster.rate_for("dispatch", 0, 8, 8, top_k=8, max_domains=4)
    # four of eight nodes, each with probability 1-(3/4)^8; seven of eight are remote
    assert limited.s_per_byte == pytest.approx(7 * 0.5 * (1 - 0.75**8) / 50e9, abs=0)
    assert free.s_per_byte == pytest.approx(7 * (1 - 0.875**8) / 50e9, abs=0)
    merged = cluster.rate_for("dispatch", 0, 8, 8, top_k=8, one_copy_per_domain=False)
    assert merged.s_per_byte == pytest.approx(8 * 56 / 64 / 50e9, abs=0)


def test_dispatch_needs_sensible_numbers():
    cluster = load_cluster("hgx-h100@2")
    with pytest.raises(InstanceError, match="top_k"):
        cluster.rate_for("dispatch", 0, 8, 2)
    with pytest.raises(InstanceError, match="max_domains"):
        cluster.rate_for("dispatch", 0, 8, 2, top_k=8, max_domains=0)
