"""The load and rate interface on switched domains: names, counts, hand-computed times."""

import pytest

from topology import load_cluster
from topology.errors import InstanceError


def ids(cluster):
    return [chip.id for chip in cluster.usable]


def test_all_gather_on_eight_h100_is_seven_eighths_over_450_gb_per_s():
    cluster = load_cluster("hgx-h100")
    rate = cluster.rate("all-gather", ids(cluster))
    assert rate.s_per_byte == pytest.approx(7 / 8 / 450e9, abs=0)
    assert rate.bound_s_per_byte <= rate.s_per_byte


def test_count_after_at_joins_domains():
    cluster = load_cluster("gb200-nvl72@4")
    assert len(cluster.domains) == 4
    assert len({domain.signature for domain in cluster.domains}) == 1
    rate = cluster.rate("all-to-all", ids(cluster))
    assert rate.s_per_byte == pytest.approx(216 / 288 / 50e9, abs=0)
    assert rate.busiest_link.endswith(".nic")
    assert cluster.rate_for("all-to-all", 2, 72, 4) == rate


def test_unknown_names_list_what_exists():
    with pytest.raises(InstanceError, match="rackfit catalogue clusters"):
        load_cluster("no-such-cluster")
    with pytest.raises(InstanceError, match="after @"):
        load_cluster("hgx-h100@0")


def test_family_takes_its_size_from_the_name():
    assert len(load_cluster("nvl-36@2").chips) == 72
