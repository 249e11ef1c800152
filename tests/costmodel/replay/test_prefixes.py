"""Blocks of earlier prompts in HBM and in the hosts' memory: what is found, and what reading it back takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.layout.layout import Layout
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.requests import Requests
from costmodel.question.traffic.reuse import known_before
from costmodel.question.workload import Workload
from costmodel.replay.fleet import host_room
from costmodel.replay.prefix_cache import HostRoom, Prefixes
from costmodel.replay.replay import Course, replay
from topology.errors import InstanceError

BLOCK, BLOCKS = 512, 16


def test_a_host_keeps_what_hbm_drops() -> None:
    kept = Prefixes(HostRoom(tokens=10.0, read_s=0.5))
    kept.use([1, 2], [4, 4])
    assert kept.known([1, 2, 3], [4, 4, 4]) == 8
    assert kept.read_s([1, 2, 3], [4, 4, 4]) == 0.0
    kept.shrink(4)
    assert kept.known([1, 2], [4, 4]) == 8
    assert kept.read_s([1, 2], [4, 4]) == 2.0
    kept.use([7], [4])  # the host has room for two blocks, the tail of the older prompt goes
    assert kept.known([1, 2], [4, 4]) == 4
    alone = Prefixes()
    alone.use([1, 2], [4, 4])
    alone.shrink(4)
    assert (alone.known([1, 2], [4, 4]), alone.read_s([1, 2], [4, 4])) == (4, 0.0)


def prompts(documents: list[int], gap_s: float = 1.0) -> Requests:
    """One prompt after another about documents, each of its own blocks."""
    count = len(documents)
    return Requests(
        arrival_s=np.arange(1.0, count + 1) * gap_s,
        input_tokens=np.full(count, BLOCK * BLOCKS + 1),
        output_tokens=np.full(count, 2),
        cached_tokens=np.zeros(count, dtype=np.int64),
        blocks=[[n * BLOCKS + i for i in range(BLOCKS)] for n in documents],
        block_sizes=[[BLOCK] * BLOCKS] * count,
    )


@pytest.fixture(scope="module")
def asked() -> tuple[Instance, Layout]:
    workload = Workload(input_tokens=BLOCK * BLOCKS + 1, output_tokens=2)
    instance = resolve_instance(
        Scenario(model="llama-3.1-8b", cluster="hgx-h100", workload=workload)
    )
    return instance, plain_layout(instance, "mixed", tp=1, batch=8, first_chip=0)


def test_a_host_tier_finds_what_a_cache_that_never_forgets_has(
    asked: tuple[Instance, Layout],
) -> None:
    """Documents that come round after HBM has dropped them."""
    requests = prompts([*range(70), *range(70)])
    met = {
        tier: replay(*asked, requests, Course.of(asked[0], host_tier=tier))
        for tier in (False, True)
    }
    ideal = known_before(requests).sum() / requests.input_tokens.sum()
    assert met[False].prefix_hit_rate < 0.05
    assert met[True].prefix_hit_rate == pytest.approx(ideal)
    assert met[True].ttft[-1] < met[False].ttft[-1] / 3


def test_what_is_read_back_delays_the_first_token(asked: tuple[Instance, Layout]) -> None:
    """The same prompt right after itself, and after HBM has dropped it."""
    course = Course.of(asked[0], host_tier=True)
    near, far = (
        replay(*asked, prompts(documents), course) for documents in ([0, 0], [0, *range(1, 70), 0])
    )
    room = host_room(asked[0], asked[1].replicas[0])
    assert room is not None
    tier = asked[0].cluster.chips[0].chip.tier("host")
    assert tier is not None
    tokens = BLOCK * BLOCKS
    moved = asked[0].request_kv_bytes * tokens / asked[0].workload.input_tokens
    assert room.read_s * tokens == pytest.approx(moved / tier.read_bytes_per_s)
    assert far.ttft[-1] - near.ttft[-1] == pytest.approx(room.read_s * tokens)
    # and what comes after it
    ends = [met.ends_s[-1] - met.arrival_s[-1] for met in (near, far)]
    assert ends[1] - ends[0] == pytest.approx(room.read_s * tokens)


def test_chips_without_such_memory_are_refused() -> None:
    workload = Workload(input_tokens=BLOCK * BLOCKS + 1, output_tokens=2)
    bare = resolve_instance(Scenario(model="llama-3.1-8b", cluster="gaudi3", workload=workload))
    layout = plain_layout(bare, "mixed", tp=1, batch=2, first_chip=0)
    with pytest.raises(InstanceError, match="no tier in its host's memory"):
        replay(bare, layout, prompts([0, 1]), Course.of(bare, host_tier=True))


def test_prompts_drawn_again_keep_their_order_and_share_nothing_with_their_first_time() -> None:
    requests = prompts([0, 1, 0, 2, 1, 3, 0, 4])
    requests = replace(requests, arrival_s=np.arange(1.0, 9.0) ** 2)
    again = requests.again(24, seed=3)
    assert np.array_equal(again.arrival_s, requests.again(24, seed=3).arrival_s)
    assert not np.array_equal(again.arrival_s, requests.again(24, seed=4).arrival_s)
    documents = [ids[0] // BLOCKS for ids in again.blocks]
    turns = [set(documents[at : at + 8]) for at in (0, 8, 16)]
    # from one in the middle on: what a turn shares with the next is cut off by its end
    assert len(turns[0] & turns[1]) <= 3
    assert not turns[0] & turns[2]
    assert known_before(again).sum() <= 3 * known_before(requests).sum()
    assert known_before(again).sum() >= 2 * BLOCK * BLOCKS
