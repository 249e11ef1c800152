"""Which replica a request goes to, and when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from operator import add
from typing import Literal

from costmodel.replay.fleet import Standing
from costmodel.replay.job import Job

Routing = Literal["least-loaded", "round-robin", "prefix-aware"]

#: passes full of prompts that each replica is given before others are held back: one that runs, and the next
AHEAD = 2


class Router:
    """Chooses among the replicas of a pool.

    ``least-loaded``: least work waiting, in seconds of prompts, each with its own context, and shares of slots; where replicas
    are unlike, with the prompt itself, which a slow one takes longer for. A prompt that is handed over also
    waits with those of the emptiest replica of ``behind``, where it will decode. ``round-robin``: in turn,
    as often as a replica's capacity says. ``prefix-aware``: least-loaded, less the seconds that the
    prompt's known prefix saves there.
    """

    def __init__(
        self, pool: Sequence[Standing], routing: Routing, behind: Sequence[Standing] = ()
    ) -> None:
        self.pool, self.routing = pool, routing
        # all replicas that hand over do so to the same ones: only beside mixed replicas does it tell them apart
        roles = {one.server.role for one in pool}
        both = {"prefill", "mixed"} <= roles
        self._role = roles.pop() if len(roles) == 1 else "mixed"
        self.behind = behind if both else ()
        prompts = {id(one.server.table) for one in pool if one.server.role != "decode"}
        self._unlike = len(prompts) > 1
        #: seconds of a prompt of so many tokens on each replica
        self._prompt_s = dict[int, list[float]]()
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
        loads = self._loads()
        if self.routing == "prefix-aware" and job.blocks:
            loads = list(map(add, loads, [_own_s(one, job) for one in pool]))
        elif self._unlike:
            loads = list(map(add, loads, self._alone_s(job.input_tokens)))
        return pool[loads.index(min(loads))]

    def _loads(self) -> list[float]:
        """Seconds of prompts and shares of slots; beside mixed replicas, also the share where a prompt decodes that is handed over."""
        if self._role == "prefill":
            return [one.waits_s for one in self.pool]
        if self._role == "decode":
            return [one.server.taken for one in self.pool]
        later = min([one.server.taken for one in self.behind]) if self.behind else 0.0
        return [
            one.waits_s + (later if one.server.role == "prefill" else one.server.taken)
            for one in self.pool
        ]

    def _alone_s(self, tokens: int) -> list[float]:
        if tokens not in self._prompt_s:
            self._prompt_s[tokens] = [one.prompt_s(0, tokens) for one in self.pool]
        return self._prompt_s[tokens]


class Held:
    """Requests that wait before the replicas as long as each of these has prompts for some passes; the shortest goes first.

    What counts is the prompt without what the replica that knows most of it has. *Source:* the queue in the router of NVIDIA Dynamo
    (``--router-queue-threshold``, ``--router-queue-policy wspt``), whose threshold is a multiple of the tokens of a pass.
    """

    def __init__(self, router: Router) -> None:
        self.router = router
        self._heap: list[tuple[int, float, int, Job]] = []
        self._most = [
            (server.pending, AHEAD * server.habits.chunk_tokens * server.table.ranks)
            for server in (one.server for one in router.pool)
        ]

    def ready(self, *more: Job) -> Iterator[tuple[Job, Standing]]:
        """Those that are sent on now that some ``more`` came, each with its replica, which has to take it in before the next one."""
        for job in more:
            self._put(job)
        while self._heap and any(pending.tokens < most for pending, most in self._most):
            job = heappop(self._heap)[-1]
            yield job, self.router.choose(job)

    def _put(self, job: Job) -> None:
        known = job.cached_tokens
        if job.blocks:
            caches = [one.server.cache for one in self.router.pool]
            found = [one.known(job.blocks, job.block_sizes) for one in caches if one is not None]
            known = max([known, *found])
        new = job.input_tokens - min(known, job.input_tokens - 1)
        heappush(self._heap, (new, job.arrival_s, job.index, job))


def _own_s(one: Standing, job: Job) -> float:
    """Seconds of a prompt without what the replica knows of it."""
    assert one.server.cache is not None
    known = one.server.cache.known(job.blocks, job.block_sizes)
    return one.prompt_s(min(known, job.input_tokens), job.input_tokens)
