"""Worked problems on GPU nodes, racks and trees: SB29-SB38, T23-T26, T44, T55."""

import math

import pytest

from topology import build_cluster, load_chip, load_cluster
from topology.collectives.demand import Dispatched, shares, touched
from topology.links.fits import load_link_fits
from topology.spec import ClusterSpec

US = 1e-6
GB = 1e9


def ids(cluster):
    return [chip.id for chip in cluster.chips]


def racks(count, ratio, chips=72):
    """NVL racks whose NICs are ``ratio`` times slower than the scale-up."""
    spec = {
        "name": "racks",
        "domains": [
            {
                "fabric": {"kind": "nvswitch", "links_per_switch": [1] * 18},
                "chips": [{"chip": "gb200", "count": chips, "nic_bytes_per_s": 900e9 / ratio}],
                "count": count,
            }
        ],
        "scale_out": {"kind": "leaf-spine"},
    }
    return build_cluster(ClusterSpec.model_validate(spec), "racks")


@pytest.mark.parametrize(("batch", "time"), [(64, 8.59), (512, 14.9)])
def test_t44_sb29_matmul_on_b200(batch, time):
    chip = load_chip("b200").model_copy(
        update={"hbm_bytes_per_s": 8e12, "flops_per_s": {"bf16": 2.3e15}}  # the book's figures
    )
    moved = 2 * (batch * 4096 + 4096 * 8192 + batch * 8192)
    computed = 2 * batch * 4096 * 8192 / chip.peak_flops_per_s("fp16")
    assert max(moved / chip.hbm_bytes_per_s, computed) == pytest.approx(time * US, rel=0.02, abs=0)


def test_t44_sb30_sb31_all_gather_in_a_node():
    cluster = load_cluster("hgx-h100")
    rate = cluster.rate("all-gather", ids(cluster))
    assert rate.s_per_byte * 4096 * 65536 * 2 == pytest.approx(1.044e-3, rel=0.02, abs=0)
    assert rate.s_per_byte * 1024 * 16384 * 2 == pytest.approx(65.2 * US, rel=0.02, abs=0)


def test_t44_sb32_all_to_all_in_a_node_and_half_empty():
    cluster = load_cluster("hgx-h100")
    array = 1e9
    full = cluster.rate("all-to-all", ids(cluster)).s_per_byte * array / 8
    assert full == pytest.approx(7 / 64 * array / 450e9, abs=0)
    half = cluster.rate("dispatch", ids(cluster), top_k=4).s_per_byte * array / 64
    assert half == pytest.approx(full / 2, abs=0)


def test_t44_sb33_levels_of_a_superpod():
    node = load_cluster("hgx-h100")
    unit = load_cluster("hgx-h100@32")
    pod = load_cluster("hgx-h100@128")
    inside = node.rate("all-gather", ids(node))
    assert 1 / inside.s_per_byte == pytest.approx(514 * GB, rel=0.02)
    assert 1 / unit.rate("all-gather", ids(unit)).s_per_byte == pytest.approx(413 * GB, rel=0.02)
    loads = pod.loads("all-gather", ids(pod))
    spine = max(
        load / pod.graph.edges[edge]["bytes_per_s"]
        for edge, load in loads.items()
        if "spine" in edge[1]
    )
    assert 1 / spine == pytest.approx(17_100 * GB, rel=0.02)


def test_t44_sb34_all_to_all_from_one_node_to_two():
    one, two = load_cluster("hgx-h100"), load_cluster("hgx-h100@2")
    array = 1.0
    inside = one.rate("all-to-all", ids(one)).s_per_byte * array / 8
    across = two.rate("all-to-all", ids(two)).s_per_byte * array / 16
    assert 1 / inside == pytest.approx(4.11e12, rel=0.02)
    assert 1 / across == pytest.approx(1.6e12, rel=0.02)
    assert across / inside == pytest.approx(2.57, rel=0.02)


def test_t44_sb35_all_gather_over_two_nodes_is_bound_inside_them():
    cluster = load_cluster("hgx-h100@2")
    rate = cluster.rate("all-gather", ids(cluster))
    assert 1 / rate.s_per_byte == pytest.approx(514 * GB, rel=0.02)
    assert rate.busiest_link.startswith("r0g0--r0sw")
    nic = max(v for (a, b), v in cluster.loads("all-gather", ids(cluster)).items() if ".nic" in b)
    assert 50 * GB / nic == pytest.approx(800 * GB, rel=0.02)


@pytest.mark.parametrize(("name", "node", "across"), [("h100", 2200, 2475), ("b200", 2500, 5625)])
def test_sb36_sb37_tokens_per_gpu_that_hide_data_parallel_traffic(name, node, across):
    cluster = load_cluster(f"hgx-{name}@2")
    flops = cluster.chips[0].chip.peak_flops_per_s("bf16")
    egress = sum(cluster.network.nic_profile(0))
    assert flops / cluster.domains[0].fabric.width(0) == pytest.approx(node, rel=0.01)
    assert flops / egress == pytest.approx(across, rel=0.01)
    if name == "h100":
        assert 2048 * flops / 300e9 == pytest.approx(6.7e6, rel=0.02)  # V3, 300 GB/s per GPU
        assert 16_384 * flops / egress == pytest.approx(40e6, rel=0.02)
        assert flops / egress * 128 / 4 == pytest.approx(79_200, rel=0.01)
        assert flops / egress * (2 - 1) / 2 == pytest.approx(1237, rel=0.01)


def test_sb38_rack_egress_is_nine_times_that_of_a_node():
    rack, node = load_cluster("gb200-nvl72@2"), load_cluster("hgx-h100@2")
    assert sum(rack.network.nic_profile(0)) == pytest.approx(3.6e12)
    ratio = sum(rack.network.nic_profile(0)) / sum(node.network.nic_profile(0))
    assert ratio == pytest.approx(9)
    assert rack.network.nic_bytes_per_s(0, 0) == pytest.approx(50 * GB)


@pytest.mark.parametrize(("count", "slower"), [(2, 4.0), (4, 6.0), (8, 7.0)])
def test_t23_experts_over_racks_without_merging_copies(count, slower):
    one, many = racks(1, 8), racks(count, 8)
    options = {"top_k": 8, "one_copy_per_domain": False}
    alone = one.rate("dispatch", ids(one), **options).s_per_byte
    across = many.rate("dispatch", ids(many), **options).s_per_byte
    assert across / alone == pytest.approx(slower, rel=0.02)


def test_t24_one_copy_per_remote_rack():
    assert 1 * touched(1 / 2, 8) == pytest.approx(0.997, rel=0.005)
    assert 3 * touched(1 / 4, 8) == pytest.approx(2.71, rel=0.005)
    one, two = racks(1, 8), racks(2, 8)
    alone = one.rate("dispatch", ids(one), top_k=8).s_per_byte
    across = two.rate("dispatch", ids(two), top_k=8).s_per_byte
    assert 0.95 <= across / alone <= 1.1


def pipeline_ratio(ratio, top_k, layers, dispatch=1.0, combine=1.0, hop=1.0):
    """Scale-up time of a stage over the time to hand its result on, all destinations remote."""
    cluster = racks(2, ratio)
    rack = ids(cluster)[:72]
    moe = cluster.rate("dispatch", rack, top_k=top_k).s_per_byte * 72 / 71
    out = cluster.rate("send", [rack[0], "r1g0"]).s_per_byte
    return layers * moe * (dispatch + combine) / (out * hop)


@pytest.mark.parametrize(
    ("top_k", "layers", "expected"),
    [(8, 1, 2.0), (4, 1, 1.0), (3, 1, 0.75), (1, 4, 1.0), (1, 1, 0.25), (16, 1, 4), (32, 1, 8)],
)
def test_t25_pipeline_condition(top_k, layers, expected):
    assert pipeline_ratio(8, top_k, layers) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ratio", "layers", "expected"), [(8, 1, 1.5), (18, 1, 0.67), (18, 2, 1.33)]
)
def test_t26_pipeline_condition_with_mixed_precision(ratio, layers, expected):
    found = pipeline_ratio(ratio, 8, layers, dispatch=1, combine=2, hop=2)
    assert found == pytest.approx(expected, rel=0.01)


def test_t55_dispatch_and_combine_bytes():
    (share,) = shares("dispatch", [8], [0], Dispatched(8, one_copy_per_domain=False), relayed=False)
    assert share.local * 128 * (7168 + 224) == 7_569_408
    assert share.local * 128 * 7168 * 2 == 14_680_064


@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_a_sum_over_nodes_takes_the_steps_of_a_tree(nodes):
    """Latencies are those that were measured link by link.

    NCCL's own model (src/graph/tuning.cc) has less: 6.8 us, and up and down again 7 hops of 1.8 x 0.6 us in a node and
    log2 n steps of 5 us between nodes.
    """

    def latency(kind, count, profile="physics"):
        cluster = load_cluster(f"hgx-h100@{count}").with_profile(profile)
        return cluster.rate(kind, ids(cluster)).latency_s

    hoped = 6.8 * US + 2 * (7 * 1.8 * 0.6 * US + math.log2(nodes) * 5 * US)
    assert hoped < latency("all-reduce", nodes)
    measured = latency("all-reduce", nodes, "calibrated")
    assert latency("all-reduce", nodes) == pytest.approx(measured, rel=0.05)
    step = load_link_fits("h100").scale_out.alpha_s
    for profile in ("physics", "calibrated"):
        four, two = (latency("all-reduce", count, profile) for count in (2 * nodes, nodes))
        assert four - two == pytest.approx(2 * step, rel=1e-3)
        # three nodes take as many steps as four; what goes straight to its target takes one
        assert latency("all-reduce", 2 * nodes - 1, profile) == pytest.approx(four)
        assert latency("all-to-all", 2 * nodes, profile) == latency("all-to-all", nodes, profile)
    assert latency("all-gather", 2 * nodes) - latency("all-gather", nodes) == pytest.approx(5 * US)
