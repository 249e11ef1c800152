"""Sets of chips on a torus to choose from where several are to find room beside each other."""

from __future__ import annotations

from itertools import combinations

import pytest

from topology import load_cluster
from topology.builders.torus import Torus


def _torus(failed: tuple[str, ...]) -> tuple[Torus, list[int]]:
    cluster = load_cluster("tpu-v5e", failed=failed)
    fabric = cluster.domains[0].fabric
    assert isinstance(fabric, Torus)
    return fabric, [chip.position for chip in cluster.chips if chip.healthy]


@pytest.mark.parametrize("failed", [(), ("r0g17", "r0g100")])
@pytest.mark.parametrize("count", [11, 16, 40])
def test_sets_wherever_they_find_room_take_what_they_are_said_to(
    failed: tuple[str, ...], count: int
) -> None:
    fabric, free = _torus(failed)
    sets = fabric.everywhere(free, count)
    assert len({one.chips for one in sets}) == len(sets)
    for one in sets[:: max(1, len(sets) // 40)]:
        assert len(one.chips) == count
        assert set(one.chips) <= set(free)
        there = fabric.exchange(one.chips)
        if not failed:  # beside a failed chip the ways out of a set that is no box are others
            assert one.exchange_s_per_byte == pytest.approx(there.s_per_byte)
        assert one.latency_s == pytest.approx(there.latency_s)
    # the quickest to exchange of all that are known is among them
    known = fabric.quickest(free, count, 32)
    soonest = min(one.exchange_s_per_byte for one in known)
    if count != 11:  # what exchanges soonest is a box
        assert min(one.exchange_s_per_byte for one in sets) <= soonest * (1 + 1e-9)


@pytest.mark.parametrize("failed", [(), ("r0g17", "r0g100")])
def test_groups_side_by_side_share_no_chip_and_follow_one_near(failed: tuple[str, ...]) -> None:
    fabric, free = _torus(failed)
    ways = fabric.side_by_side(free, 16, 6)
    assert ways
    for way in ways:
        assert [len(group) for group in way] == [16] * 6
        assert all(set(group) <= set(free) for group in way)
        assert all(set(one).isdisjoint(other) for one, other in combinations(way, 2))
    # one way for each kind of group
    speeds = [{fabric.exchange(group).s_per_byte for group in way} for way in ways]
    assert all(len(own) == 1 for own in speeds)
    assert fabric.side_by_side(free[:40], 16, 6) == []
