"""Closed forms against the graph's own answer, to 0.1 %, on every regular topology up to 64 chips."""

import random

import pytest
from oracle import graph_seconds_per_byte

from topology import build_cluster, load_cluster
from topology.collectives.demand import KINDS
from topology.spec import ClusterSpec

SWITCHED = ["hgx-h100", "hgx-b200", "nvl-12", "nvl-64"]
JOINED = ["hgx-h100@4", "nvl-18@2", "mi300x@2"]
MESHES = ["mi300x", "gaudi3"]
TORI = [
    "tpu-v5e-4x4", "tpu-v6e-8x8", "tpu-v5e-16x4", "tpu-v4-4x4x4", "tpu-v5p-2x4x4",
    "trn2-ultraserver", "tpu-v5e-3x5",
]  # fmt: skip
JOINED_TORI = ["tpu-v5p-2x2x2@4"]


def options(kind):
    return (
        [{"top_k": 8}, {"top_k": 4, "one_copy_per_domain": False}] if kind == "dispatch" else [{}]
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SWITCHED + JOINED + MESHES + TORI + JOINED_TORI)
def test_closed_form_equals_the_graph(name, kind):
    cluster = load_cluster(name)
    ids = [chip.id for chip in cluster.chips]
    if kind == "send":
        ids = [ids[0], ids[-1]]
    for extra in options(kind):
        rate = cluster.rate(kind, ids, **extra)
        assert rate.s_per_byte == pytest.approx(
            graph_seconds_per_byte(cluster, kind, ids, **extra), rel=1e-3, abs=0
        )
        assert rate.bound_s_per_byte <= rate.s_per_byte
        assert rate.bound_latency_s <= rate.latency_s


def built(fabric, chip, chips, count=1, **scale_out):
    spec = {
        "name": "built",
        "domains": [{"fabric": fabric, "chips": [{"chip": chip, "count": chips}], "count": count}],
        "scale_out": {"kind": "leaf-spine", **scale_out},
    }
    return build_cluster(ClusterSpec.model_validate(spec), "built")


TWO_LAYER = {"kind": "two-layer", "chips_per_group": 4, "planes": 3, "second_layer": 2}
HOPPER = {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]}
BUILT = {
    "two layers": built(TWO_LAYER, "b200", 16),
    "two layers joined": built(TWO_LAYER, "b200", 12, count=3, oversubscription=3),
    "units, oversubscribed": built(HOPPER, "h100", 4, count=8, domains_per_unit=2, oversubscription=6),
    "rails": built(
        HOPPER, "h100", 4, count=6, kind="rail-optimised", domains_per_unit=3, rails=4, spines=5,
        oversubscription=4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BUILT)
def test_closed_form_equals_the_graph_when_the_seams_bind(name, kind):
    cluster = BUILT[name]
    ids = [chip.id for chip in cluster.chips]
    if kind == "send":
        ids = [ids[0], ids[-1]]
    for extra in options(kind):
        rate = cluster.rate(kind, ids, **extra)
        expected = graph_seconds_per_byte(cluster, kind, ids, **extra)
        assert rate.s_per_byte == pytest.approx(expected, rel=1e-3, abs=0)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "send"])
@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("tpu-v4-4x4x4", [0, 1, 2, 3]),
        ("tpu-v4-4x4x4", range(16)),
        ("tpu-v5e-8x8", [0, 1, 2, 8, 9, 10]),
        ("tpu-v5e-8x8", [9, 10, 11, 12]),
        ("nvl-64", [3, 9, 27, 41, 60]),
        ("mi300x", [1, 4, 6]),
    ],
)
def test_closed_form_equals_the_graph_on_part_of_a_domain(name, positions, kind):
    cluster = load_cluster(name)
    ids = [cluster.chips[position].id for position in positions]
    for extra in options(kind):
        rate = cluster.rate(kind, ids, **extra)
        expected = graph_seconds_per_byte(cluster, kind, ids, **extra)
        assert rate.s_per_byte == pytest.approx(expected, rel=1e-3, abs=0)


@pytest.mark.parametrize("kind", ["all-to-all", "dispatch"])
@pytest.mark.parametrize("name", ["tpu-v5e-4x4", "tpu-v4-4x4x4", "trn2-ultraserver", "tpu-v5e-3x5"])
def test_scattered_chips_of_a_torus_equal_the_graph(name, kind):
    cluster, draw = load_cluster(name), random.Random(0)
    names = [chip.id for chip in cluster.chips]
    for _ in range(4):
        ids = draw.sample(names, draw.randint(2, min(24, len(names))))
        extra = options(kind)[0]
        rate = cluster.rate(kind, ids, **extra)
        expected = graph_seconds_per_byte(cluster, kind, ids, **extra)
        assert rate.s_per_byte == pytest.approx(expected, rel=1e-3, abs=0)
        assert rate.bound_s_per_byte <= rate.s_per_byte
        for other in ("all-gather", "broadcast"):
            found = cluster.rate(other, ids)
            assert 0 < found.bound_s_per_byte <= found.s_per_byte < 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", ["hgx-h100@4", "nvl-36", "mi300x@2", "tpu-v5e-4x4", "trn2-ultraserver"]
)
def test_loads_of_links_give_the_same_time_as_the_rate(name, kind):
    cluster = load_cluster(name)
    ids = [chip.id for chip in cluster.chips]
    if kind == "send":
        ids = [ids[0], ids[-1]]
    extra = options(kind)[0]
    loads = cluster.loads(kind, ids, **extra)
    edges = cluster.graph.edges
    slowest = max(load / edges[edge]["bytes_per_s"] for edge, load in loads.items())
    rate = cluster.rate(kind, ids, **extra)
    assert slowest <= rate.s_per_byte * 1.001
    assert slowest >= rate.bound_s_per_byte * 0.95


def every_shape():
    """Each torus of up to 64 chips by family, each node and rack size, and nodes joined."""
    for name in ("tpu-v5e", "tpu-v6e"):
        for a in range(1, 17):
            for b in range(a, 17):
                if 1 < a * b <= 64:
                    yield f"{name}-{a}x{b}"
    for name in ("tpu-v4", "tpu-v7"):
        for a in range(1, 9):
            for b in range(a, 9):
                for c in range(b, 17):
                    if 1 < a * b * c <= 64:
                        yield f"{name}-{a}x{b}x{c}"
    yield from (f"nvl-{count}" for count in range(2, 65))
    for node in ("hgx-h100", "hgx-b200", "hgx-h800", "hgx-a100", "hgx-h20", "mi300x", "gaudi3"):
        yield from (f"{node}@{count}" for count in range(1, 9))
    yield from ("trn2", "trn2-ultraserver", "gh200-nvl32@2", "tpu-v5e-4x4@4")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_closed_form_equals_the_graph_everywhere_up_to_64_chips(kind):
    for name in every_shape():
        cluster = load_cluster(name)
        ids = [chip.id for chip in cluster.chips]
        if kind == "send":
            ids = [ids[0], ids[-1]]
        for extra in options(kind):
            found = cluster.rate(kind, ids, **extra).s_per_byte
            expected = graph_seconds_per_byte(cluster, kind, ids, **extra)
            assert found == pytest.approx(expected, rel=1e-3, abs=0), name
