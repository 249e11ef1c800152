"""What failures cost, against hand calculations; failed and taken chips are ordinary input."""

import pytest
from oracle import graph_seconds_per_byte

from topology import build_cluster, load_cluster
from topology.errors import InstanceError
from topology.spec import ClusterSpec

HOPPER = {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]}
NVL72 = {"kind": "nvswitch", "links_per_switch": [1] * 18}
RAILS = {"kind": "rail-optimised"}
PLAIN = {"kind": "leaf-spine"}


def made(fabric, chip, chips, count=1, scale_out=None, failed=(), taken=()):
    rows = chips if isinstance(chips, list) else [{"chip": chip, "count": chips}]
    spec = {
        "name": "made",
        "domains": [{"fabric": fabric, "chips": rows, "count": count}],
        "scale_out": scale_out or PLAIN,
        "failed": list(failed),
        "taken": list(taken),
    }
    return build_cluster(ClusterSpec.model_validate(spec), "made")


def usable(cluster):
    return [chip.id for chip in cluster.usable]


def seconds(cluster, kind, ids=None, **options):
    return cluster.rate(kind, ids or usable(cluster), **options).s_per_byte


def approx(value):
    return pytest.approx(value, rel=1e-9, abs=0)


def test_losing_one_chip_of_72_leaves_seventy_one():
    cluster = made(NVL72, "gb200", 72, failed=["r0g5"])
    assert len(cluster.usable) == 71
    assert "r0g5" not in cluster.graph
    assert seconds(cluster, "all-gather") == approx(70 / 71 / 900e9)
    assert seconds(cluster, "all-to-all") == approx(70 / 71 / 900e9)
    with pytest.raises(InstanceError, match="failed"):
        cluster.rate("all-gather", ["r0g4", "r0g5"])


@pytest.mark.parametrize("kind", ["all-gather", "all-to-all", "reduce-scatter"])
def test_losing_one_of_18_switch_chips_costs_one_eighteenth_of_bandwidth(kind):
    whole, hurt = made(NVL72, "gb200", 72), made(NVL72, "gb200", 72, failed=["r0sw7"])
    assert seconds(hurt, kind) == approx(seconds(whole, kind) * 18 / 17)
    assert hurt.domains[0].interchangeable_chips


def test_losing_a_wide_switch_of_a_hopper_node_costs_five_of_18_links():
    hurt = made(HOPPER, "h100", 8, failed=["r0sw0"])
    assert seconds(hurt, "all-to-all") == approx(7 / 8 / (450e9 * 13 / 18))


def test_losing_one_link_slows_its_chip_only():
    cluster = made(NVL72, "gb200", 72, failed=["r0g3--r0sw2"])
    # 71/72 of the bytes over 17 instead of 18 links
    assert seconds(cluster, "all-to-all") == approx(71 / 72 / (17 * 50e9))
    others = [name for name in usable(cluster) if name != "r0g3"]
    assert seconds(cluster, "all-to-all", others) == approx(70 / 71 / 900e9)
    assert not cluster.domains[0].interchangeable_chips
    assert cluster.rate("all-to-all", usable(cluster)).busiest_link.startswith("r0g3--")


def test_two_chips_without_different_switches_share_what_both_reach():
    cluster = made(NVL72, "gb200", 12, failed=["r0g0--r0sw0", "r0g1--r0sw1"])
    # to ten others over 17 links each, to the other hurt one over the 16 both have
    load = (10 / 17 + 1 / 16) / 12
    assert seconds(cluster, "all-to-all") == approx(load / 50e9)
    assert seconds(cluster, "all-to-all") == approx(
        graph_seconds_per_byte(cluster, "all-to-all", usable(cluster))
    )


def test_losing_one_nic_leaves_seven_to_carry_a_node():
    whole = made(HOPPER, "h100", 8, 2, RAILS)
    hurt = made(HOPPER, "h100", 8, 2, RAILS, failed=["r0g3.nic"])
    # half of each chip's bytes leave: 8 chips' share over 7 NICs
    assert seconds(whole, "all-to-all") == approx(0.5 / 50e9)
    assert seconds(hurt, "all-to-all") == approx(0.5 * 8 / 7 / 50e9)
    assert len(hurt.usable) == 16


def test_losing_a_leaf_loses_one_rail_of_its_unit():
    hurt = made(HOPPER, "h100", 8, 4, RAILS, failed=["leaf2"])
    assert seconds(hurt, "all-to-all") == approx(0.75 * 8 / 7 / 50e9)


@pytest.mark.parametrize("spines", [8, 16])
def test_losing_a_spine_costs_its_share_between_units(spines):
    plain = {"kind": "leaf-spine", "spines": spines}
    whole = made(NVL72, "gb200", 72, 2, plain)
    hurt = made(NVL72, "gb200", 72, 2, plain, failed=["spine0"])
    assert seconds(whole, "all-to-all") == approx(0.5 / 50e9)
    assert seconds(hurt, "all-to-all") == approx(0.5 / 50e9 * spines / (spines - 1))


def test_losing_a_spine_changes_nothing_inside_a_unit():
    hurt = made(HOPPER, "h100", 8, 2, RAILS, failed=["spine0"])
    assert seconds(hurt, "all-to-all") == approx(0.5 / 50e9)


def test_losing_a_link_of_a_mesh_detours_its_pair():
    hurt = made({"kind": "mesh"}, "mi300x", 8, failed=["r0g0--r0g1"])
    assert seconds(hurt, "send", ["r0g0", "r0g1"]) == approx(1 / 6 / 64e9)
    # the pair's eighth goes over six other links beside their own eighth
    assert seconds(hurt, "all-to-all") == approx((1 / 8 + 1 / 8 / 6) / 64e9)


def test_losing_a_link_of_a_torus_leaves_five_ports():
    fabric = {"kind": "torus", "shape": [4, 4, 4]}
    hurt = made(fabric, "tpu-v4", 64, failed=["r0g0--r0g1"])
    rate = hurt.rate("all-gather", usable(hurt))
    assert rate.bound_s_per_byte == approx(63 / 64 / (5 * 45e9))
    assert rate.s_per_byte == approx(13 / 64 / 45e9)  # ceil(63 / 5) whole shards


PLANES = {"kind": "two-layer", "chips_per_group": 4, "planes": 3, "second_layer": 4}


@pytest.mark.parametrize(
    ("failed", "load"),
    [
        # a first-layer switch: its group's chips have two wires of 300 GB/s left of three
        ("r0sw1.0", 15 / 16 / 600e9),
        # a second-layer switch: a third of what 4 chips send to 12 of 16, over three uplinks of 300
        ("r0top2.1", 4 * 12 / 16 / 3 / 900e9),
    ],
)
def test_losing_a_switch_of_either_layer(failed, load):
    cluster = made(PLANES, "b200", 16, failed=[failed])
    assert seconds(cluster, "all-to-all") == approx(load)
    assert graph_seconds_per_byte(cluster, "all-to-all", usable(cluster)) == approx(load)


def test_partial_node_keeps_the_width_of_its_links():
    half = made(HOPPER, "h100", 4)
    assert seconds(half, "all-gather") == approx(3 / 4 / 450e9)
    mesh = made({"kind": "mesh", "places": 8}, "mi300x", 4)
    assert seconds(mesh, "all-gather") == approx(1 / 4 / 64e9)


def test_mixed_chip_types_go_at_the_pace_of_the_narrower():
    rows = [{"chip": "b200", "count": 4}, {"chip": "h100", "count": 4}]
    mixed = made({"kind": "nvswitch", "links_per_switch": [9, 9]}, None, rows)
    assert not mixed.domains[0].interchangeable_chips
    b200s = [chip.id for chip in mixed.usable if chip.chip.name == "b200"]
    assert seconds(mixed, "all-gather", b200s) == approx(3 / 4 / 900e9)
    assert seconds(mixed, "all-gather") == approx(7 / 8 / 450e9)


def test_taken_chips_are_healthy_but_not_usable():
    cluster = made(NVL72, "gb200", 72, taken=["r0g1[0-9]", "r0g7"])
    assert len(cluster.usable) == 61
    assert cluster.chip("r0g7").healthy
    assert not cluster.chip("r0g7").available
    assert cluster.domains[0].interchangeable_chips
    assert "r0g7" in cluster.graph


def test_domains_hurt_alike_are_interchangeable_and_others_not():
    cluster = made(NVL72, "gb200", 72, 4, failed=["r1g5", "r2g60", "r3sw0"])
    signature = [domain.signature for domain in cluster.domains]
    assert signature[1] == signature[2]
    assert len(set(signature)) == 3
    assert cluster.alike(1) == (1, 2)
    assert cluster.digest != load_cluster("gb200-nvl72@4").digest


def test_a_chip_without_links_is_not_usable_and_no_route_is_an_error():
    cluster = made(NVL72, "gb200", 4, 2, failed=["r0g0--*", "r1g*.nic"])
    assert not cluster.chip("r0g0").healthy
    with pytest.raises(InstanceError, match="no working NIC"):
        cluster.rate("all-to-all", ["r0g1", "r1g1"])


def test_whole_domains_and_wildcards_over_domains():
    cluster = made(NVL72, "gb200", 8, 4, failed=["r1", "r*g0", "r3sw*"], taken=["r2"])
    assert usable(cluster) == [f"r0g{k}" for k in range(1, 8)]
    assert not any(chip.available for chip in cluster.domains[2].chips)
    assert all(chip.healthy for chip in cluster.domains[2].chips[1:])


@pytest.mark.parametrize("link", ["r0g3.nic--leaf0", "leaf0--r0g3.nic", "r0g3--r0g3.nic"])
def test_a_cut_cable_of_a_nic_is_a_lost_nic(link):
    hurt = made(HOPPER, "h100", 8, 2, failed=[link])
    assert hurt.network.nic_bytes_per_s(0, 3) == 0
    assert seconds(hurt, "all-to-all") == approx(0.5 * 8 / 7 / 50e9)


def test_a_torus_holds_one_type_of_chip():
    rows = [{"chip": "tpu-v4", "count": 8}, {"chip": "tpu-v5p", "count": 8}]
    with pytest.raises(InstanceError, match="one type"):
        made({"kind": "torus", "shape": [4, 4]}, None, rows)


def test_unknown_names_are_all_reported_at_once():
    with pytest.raises(InstanceError) as caught:
        made(NVL72, "gb200", 4, failed=["r0g9", "spine99", "r7g0"], taken=["r0g4", "x"])
    assert len(caught.value.problems) == 5


def test_transfers_of_many_messages_share_links():
    cluster = made(HOPPER, "h100", 8, 2, failed=["r0g0.nic"])
    done = cluster.transfers([("r0g1", "r1g1", 1e9), ("r0g1", "r1g2", 1e9), ("r0g3", "r0g4", 9e9)])
    assert done.time_s == approx(2e9 / 50e9)
    # the chip without a NIC goes through its seven neighbours
    relayed = cluster.transfers([("r0g0", "r1g0", 7e9)])
    assert relayed.loads["r0g1", "r0g1.nic"] == approx(1e9)


def test_a_chip_without_links_changes_rails_beside_the_other_end():
    """A domain of one chip on rail 0, and a node: its chip on rail 0 passes on to the one on rail 5, at its 450 GB/s."""
    spec = {
        "name": "made",
        "domains": [
            {"fabric": HOPPER, "chips": [{"chip": "h100", "count": 8}]},
            {"fabric": {"kind": "torus", "shape": [1, 1]}, "chips": [{"chip": "h100", "count": 1}]},
        ],
        "scale_out": RAILS,
    }
    cluster = build_cluster(ClusterSpec.model_validate(spec), "made")
    for ends in (["r1g0", "r0g5"], ["r0g5", "r1g0"]):
        rate = cluster.rate("send", ends)
        assert rate.s_per_byte == approx(1 / 50e9)
        assert cluster.rate("send", ["r0g0", "r1g0"]).s_per_byte == approx(1 / 50e9)
        assert not any("spine" in end for link in cluster.loads("send", ends) for end in link)
