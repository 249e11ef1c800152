"""A group of chips on a torus takes as long as its mirror image, turned, or moved along a ring."""

import random
from itertools import permutations, product

import pytest

from topology import load_cluster
from topology.collectives.demand import KINDS
from topology.routing.boxes import position_of, site_of

TORI = ["tpu-v6e-4x4", "tpu-v6e-2x4", "tpu-v5e-3x5", "trn2", "tpu-v7-2x2x4", "tpu-v4-4x4x4"]


def images(fabric):
    """Where each position goes under mirrors, swaps of axes that are alike, and turns of rings."""
    axes = fabric.axes
    shape = [axis.side for axis in axes]
    for order in permutations(range(len(axes))):
        if any(axes[a] != axes[b] for a, b in enumerate(order)):
            continue
        shifts = product(*((0, 1) if axis.ring else (0,) for axis in axes))
        for mirrored, shift in product(product((False, True), repeat=len(axes)), shifts):

            def image(position, order=order, mirrored=mirrored, shift=shift):
                site = [site_of(position, shape)[axis] for axis in order]
                for number, side in enumerate(shape):
                    if mirrored[number]:
                        site[number] = side - 1 - site[number]
                    site[number] = (site[number] + shift[number]) % side
                return position_of(site, shape)

            yield image


def figures(cluster, kind, positions):
    ids = [cluster.chips[position].id for position in positions]
    rate = cluster.rate(kind, ids, **({"top_k": 2} if kind == "dispatch" else {}))
    return rate.s_per_byte, rate.latency_s


@pytest.mark.parametrize("name", TORI)
def test_a_group_mirrored_or_turned_takes_equally_long(name):
    cluster, draw = load_cluster(name), random.Random(name)
    fabric = cluster.domains[0].fabric
    turns = list(images(fabric))
    assert len(turns) >= 4
    places = range(len(fabric.chips))
    for size in [2, 3, 5, *(draw.randint(2, min(12, len(places))) for _ in range(4))]:
        group = draw.sample(places, size)
        for kind in KINDS:
            own = group[:2] if kind == "send" else group
            expected = figures(cluster, kind, own)
            for image in draw.sample(turns, min(len(turns), 6)):
                found = figures(cluster, kind, [image(position) for position in own])
                assert found == pytest.approx(expected, rel=1e-9), (kind, own)


def test_the_latency_of_seven_chips_is_that_of_their_mirror_image():
    """It was the eccentricity of the member with the lowest number: 6 us here, 8 us mirrored."""
    cluster = load_cluster("tpu-v6e-4x4")
    group = [0, 1, 2, 4, 5, 8, 12]
    mirrored = [15 - position for position in group]
    here, there = (figures(cluster, "all-reduce", own) for own in (group, mirrored))
    assert here == pytest.approx(there)
    # the farthest pair, chips 2 and 12, is five hops apart; an all-reduce is two passes
    assert here[1] == pytest.approx(2 * 5e-6)


def test_chips_outside_a_group_do_not_make_it_quicker():
    """Messages through chips of other groups get their turns there: no scattered set beats a compact one."""
    for name, count in [("trn2", 2), ("trn2", 4), ("tpu-v7-2x2x4", 2), ("tpu-v7-2x2x4", 3)]:
        cluster = load_cluster(name)
        fabric, draw = cluster.domains[0].fabric, random.Random(0)
        places = range(len(fabric.chips))
        compact = figures(cluster, "all-to-all", fabric.pick(places, count))[0]
        for _ in range(60):
            scattered = draw.sample(places, count)
            assert figures(cluster, "all-to-all", scattered)[0] >= compact * (1 - 1e-9)
