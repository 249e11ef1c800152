"""Hit rates from reuse distances beside a cache that drops the least recently used blocks."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.question.traffic.load import load_traffic
from costmodel.question.traffic.requests import Requests
from costmodel.question.traffic.reuse import known_before, reuse
from costmodel.replay.prefix_cache import PrefixCache


def cached(requests: Requests, capacity: float) -> float:
    """Share of prompt tokens that a cache of so many tokens has, request by request."""
    cache, hit = PrefixCache(), 0
    for ids, sizes in zip(requests.blocks, requests.block_sizes, strict=True):
        cache.shrink(capacity)
        hit += cache.known(ids, sizes)
        cache.use(ids, sizes)
    return hit / float(requests.input_tokens.sum())


def test_ten_capacities_of_recorded_chats() -> None:
    requests = load_traffic("mooncake-conversation")
    found = reuse(requests)
    for capacity in np.geomspace(1e5, 1e8, 10):
        assert found.hit_rate(capacity) == pytest.approx(cached(requests, capacity), abs=1e-12)
    # what a cache that never forgets finds, as the trace's source counts it
    assert found.most == pytest.approx(0.347, abs=0.002)
    assert found.hit_rate(0.0) == 0.0


def test_random_prompts_that_share_beginnings() -> None:
    rng = np.random.default_rng(7)
    blocks, sizes = [], []
    for _ in range(400):
        stem = int(rng.integers(0, 12))
        ids = [stem * 100 + depth for depth in range(int(rng.integers(1, 9)))]
        blocks.append(ids)
        sizes.append([16 + (block % 5) for block in ids])
    count = np.array([sum(own) for own in sizes])
    requests = Requests(np.arange(400.0), count, count, count * 0, blocks, sizes)
    found = reuse(requests)
    for capacity in (10, 60, 200, 500, 900, 1500):
        assert found.hit_rate(capacity) == pytest.approx(cached(requests, capacity), abs=1e-12)


def test_blocks_named_twice_and_sizes_that_differ() -> None:
    """Against the plain cache on prompts that no tokenizer would make."""
    rng = np.random.default_rng(3)
    blocks = [rng.integers(0, 25, int(rng.integers(0, 7))).tolist() for _ in range(300)]
    sizes = [[16 + block % 3 for block in ids] for ids in blocks]
    count = np.array([sum(own) + 1 for own in sizes])
    requests = Requests(np.arange(300.0), count, count, count * 0, blocks, sizes)
    found = reuse(requests)
    for capacity in (15, 40, 90, 160, 250, 330, 500):
        assert found.hit_rate(capacity) == pytest.approx(cached(requests, capacity), abs=1e-12)
    assert found.most == pytest.approx(known_before(requests).sum() / count.sum(), abs=1e-12)


def test_nothing_is_known_of_prompts_without_blocks() -> None:
    count = np.array([5, 7])
    bare = Requests(np.arange(2.0), count, count, count * 0)
    assert reuse(bare).most == 0.0
    assert reuse(bare).hit_rate(100) == 0.0
