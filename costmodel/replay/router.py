"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from costmodel.replay.fleet import Standing
from costmodel.replay.job import Job

Routing = Literal["least-loaded", "round-robin", "prefix-aware"]


class Router:
    """Chooses among the replicas of a pool.

    ``least-loaded``: least work waiting, in seconds of prompts and shares of slots. ``round-robin``: in turn,
    as often as a replica's capacity says. ``prefix-aware``: least-loaded, less the seconds that the
    prompt's known prefix saves there.
    """

    def __init__(self, pool: Sequence[Standing], routing: Routing) -> None:
        self.pool, self.routing = pool, routing
        self._sent = [0.0] * len(pool)
        self._capacity = [
            one.server.slots if one.server.role == "decode" else one.prompt_tokens_per_s
            for one in pool
        ]

    def choose(self, job: Job) -> Standing:
        """The replica for a request."""
        pool = self.pool
        if len(pool) == 1:
            return pool[0]
        if self.routing == "round-robin":
            sent, capacity = self._sent, self._capacity
            turn = min(range(len(pool)), key=lambda i: (sent[i] + 1.0) / capacity[i])
            sent[turn] += 1.0
            return pool[turn]
        if self.routing == "prefix-aware" and job.blocks:
            return min(pool, key=lambda one: _load(one) - _saved_s(one, job))
        return min(pool, key=_load)


def _load(one: Standing) -> float:
    server = one.server
    if server.role == "decode":
        return server.load / server.slots
    waits = server.pending_tokens / one.prompt_tokens_per_s
    return waits + server.load / server.slots if server.role == "mixed" else waits


def _saved_s(one: Standing, job: Job) -> float:
    cache = one.server.cache
    if cache is None:
        return 0.0
    return cache.known(job.blocks, job.block_sizes) / one.prompt_tokens_per_s
