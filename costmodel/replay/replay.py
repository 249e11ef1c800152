"""``replay(instance, layout, requests)``: the second judge. Each request through a layout, event by event.

Never sees the solver. Pass times are those of ``evaluate``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from time import perf_counter

import numpy as np

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.question.profile_parts import HostTime
from costmodel.question.traffic.follows import Follows
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import PromptOrder
from costmodel.replay.fleet import Standing, Tables, standing, under_way
from costmodel.replay.gaps import Gaps
from costmodel.replay.job import Habits, Job
from costmodel.replay.links import Links
from costmodel.replay.met import Met, Totals, met
from costmodel.replay.prefix_cache import Prefixes
from costmodel.replay.router import Held, Router, Routing
from costmodel.replay.targets import Patience
from topology.errors import InstanceError, Problem


@dataclass(frozen=True)
class Course:
    """How requests are run: the engine's habits, how they are routed, and at most how many at once.

    ``in_flight``: a closed loop of so many requests, each begun when another ends (``None``: they come when
    they come). ``order``: which waiting prompt is next. ``follows``: requests that wait for the answers of others; the rest
    come when they come. ``host``: what the server takes before a request joins the engine's queue. ``host_tier``: whether prefix
    blocks stay in the hosts' memory too. ``alike``: drafts of all sequences are right equally often, as where one draw
    stands for a batch; else each has its own luck. ``under_way``: seed of the sequences that decode already when the first
    request comes (``None``: the fleet is empty then).
    """

    habits: Habits = field(default_factory=Habits)
    routing: Routing = "least-loaded"
    in_flight: int | None = None
    host: HostTime = field(default_factory=HostTime)
    host_tier: bool = False
    follows: Follows | None = None
    alike: bool = False
    under_way: int | None = None
    order: PromptOrder = "first-come"

    @property
    def closed(self) -> bool:
        """Whether a slow server is sent less."""
        return self.in_flight is not None or self.follows is not None

    @classmethod
    def of(
        cls,
        instance: Instance,
        *,
        routing: Routing = "least-loaded",
        in_flight: int | None = None,
        host_tier: bool = False,
    ) -> Course:
        """The habits of the engine that the question names, or those that ``evaluate`` prices."""
        chunk, engine = instance.limits.prefill_chunk_tokens, instance.engine
        habits, host = Habits(chunk_tokens=chunk), HostTime()
        if engine is not None:
            habits = Habits.of(engine.habits, chunk)
            host = instance.profile.host_of(engine.engine)
        own = instance.limits.prompt_order
        return cls(habits, routing, in_flight, host, host_tier, order=own)


def replay(
    instance: Instance,
    layout: Layout,
    requests: Requests,
    course: Course | None = None,
    tables: Tables | None = None,
) -> Met:
    """Run requests through a layout.

    Parameters
    ----------
    instance
        The question; its workload's lengths are not read, only what the layout is priced with.
    layout
        Any layout that can be priced.
    requests
        Who comes when, with how many tokens.
    course
        Scheduling, routing, closed or open loop.
    tables
        Tables of passes kept from one replay of the question to the next.

    Returns
    -------
    Met
        What each request met, and totals.

    Raises
    ------
    InstanceError
        The layout cannot be priced, lacks a pool, or cannot hold the longest request; or that request is longer
        than the model supports.
    """
    found = replay_with(instance, layout, requests, None, course, tables)
    assert found is not None  # nothing ends it
    return found


def replay_with(
    instance: Instance,
    layout: Layout,
    requests: Requests,
    patience: Patience | None,
    course: Course | None = None,
    tables: Tables | None = None,
) -> Met | None:
    """As :func:`replay`; ``None`` as soon as ``patience`` is over, which then says what was missed."""
    began = perf_counter()
    course = course or Course.of(instance)
    supported = instance.model.max_context
    if supported is not None and requests.longest > supported:
        message = (
            f"the longest request has {requests.longest} tokens with its answer, more than the "
            f"{supported} positions that {instance.model.name} supports"
        )
        raise InstanceError(Problem("traffic", message))
    gaps = Gaps()
    fleet = standing(instance, layout, course.habits, gaps, requests.longest, tables)
    if course.host_tier and any(one.host is None for one in fleet):
        raise InstanceError(
            Problem("layout", "a chip of a replica has no tier in its host's memory")
        )
    judged = evaluate(instance, layout)
    lacking = [found.message for found in judged.violations if found.rule == "both_pools"]
    if lacking:
        raise InstanceError(Problem("layout", lacking[0]))
    links = Links.beside(instance.cluster.uplinks, judged.priced)
    serving = fleet
    if not any(one.server.role == "decode" for one in fleet):
        # mixed replicas serve alone: what others computed would be decoded by nobody
        serving = [one for one in fleet if one.server.role == "mixed"]
    jobs = run(instance, serving, requests, course, links, patience)
    if patience is not None and patience.over:
        return None
    return met(
        instance, layout, requests, jobs,
        Totals(fleet, gaps, perf_counter() - began), closed=course.closed,
    )  # fmt: skip


def run(
    instance: Instance,
    fleet: list[Standing],
    requests: Requests,
    course: Course,
    links: Links | None = None,
    patience: Patience | None = None,
) -> list[Job]:
    """The requests with the times that they met, in order of arrival.

    ``links``: what hand-overs between domains may use; all of it unless given. Where ``patience`` ends, so do they.
    """
    jobs = _jobs(requests, alike=course.alike)
    if len(requests.blocks):
        for one in fleet:
            if one.server.role != "decode":
                one.server.cache = Prefixes(one.host if course.host_tier else None)
    pool = [one for one in fleet if one.server.role == "decode"]
    entry = Router([one for one in fleet if one.server.role != "decode"], course.routing, pool)
    held = Held(entry) if course.order == "shortest" else None
    decode = Router(pool, "least-loaded")
    home = {id(one.server): one for one in fleet}
    links, order = links or Links(instance.cluster.uplinks), count()
    per_token = instance.request_kv_bytes / instance.workload.input_tokens
    #: time, order, kind (0 boundary, 1 arrival, 2 hand-over), which, version
    heap: list[tuple[float, int, int, object, int]] = []
    closed = course.in_flight
    upcoming = 0
    # longer prompts may join the queue after shorter ones that came later
    follows = course.follows
    comes = sorted(
        (job.arrival_s + course.host.of(job.input_tokens), job.index)
        for job in jobs
        if follows is None or follows.after[job.index] < 0
    )
    waiting = follows.next_of() if follows is not None else []

    def wake(one: Standing, at: float | None) -> None:
        if at is not None:
            heappush(heap, (at, next(order), 0, one, one.server.version))

    def enter(job: Job, now: float) -> None:
        if held is not None:
            send_on(held, now, job)
        else:
            one = entry.choose(job)
            wake(one, one.server.add(job, now))

    def send_on(held: Held, now: float, *more: Job) -> None:
        for job, one in held.ready(*more):
            wake(one, one.server.add(job, now))

    def begin(job: Job, now: float) -> None:
        job.arrival_s = now
        heappush(heap, (now + course.host.of(job.input_tokens), next(order), 1, job, 0))

    def begin_next(now: float) -> None:
        nonlocal upcoming
        if upcoming < len(jobs):
            upcoming += 1
            begin(jobs[upcoming - 1], now)

    if course.under_way is not None:
        for one, own in under_way(fleet, requests, course.under_way):
            wake(one, one.server.resume(own, 0.0))
    if closed is not None:
        for _ in range(min(closed, len(jobs))):
            begin_next(0.0)
    done: list[Job] = []
    while heap or (closed is None and upcoming < len(comes)):
        if closed is None and upcoming < len(comes):
            at, index = comes[upcoming]
            if not heap or at <= heap[0][0]:
                upcoming += 1
                enter(jobs[index], at)
                continue
        now, _, kind, what, version = heappop(heap)
        if kind == 0:
            assert isinstance(what, Standing)
            server = what.server
            if version != server.version:
                continue
            wake(what, server.step(now, done))
            if held is not None and server.role != "decode":
                send_on(held, now)
            if not done:
                continue
            for job in done:
                if server.role == "prefill" and job.emitted < job.output_tokens:
                    moved = (job.input_tokens) * per_token
                    alone = what.transfer_s * job.input_tokens / instance.workload.input_tokens
                    target = decode.choose(job)
                    away = home[id(target.server)].domain
                    if away == what.domain:
                        sent = job.first_s + alone
                    else:
                        sent = links.sent_s(what.domain, away, job.first_s, moved, alone)
                    job.sent_s, job.first_s = sent, -1.0
                    if course.habits.first_token == "decodes":
                        job.emitted = 0  # computed there again
                    heappush(heap, (sent, next(order), 2, (target, job), 0))
                    if patience is not None:
                        patience.sent(job)
                    continue
                if closed is not None:
                    begin_next(now)
                elif follows is not None:
                    for other in waiting[job.index]:
                        begin(jobs[other], now + float(follows.pause_s[other]))
                if patience is not None and job.index >= 0:
                    patience.ended(job)
            done.clear()
            if patience is not None and patience.over:
                break
        elif kind == 1:
            assert isinstance(what, Job)
            enter(what, now)
        else:
            assert isinstance(what, tuple)
            one, job = what
            wake(one, one.server.add(job, now))
    return jobs


def _jobs(requests: Requests, *, alike: bool) -> list[Job]:
    count = len(requests)
    # the same requests have the same luck with drafts
    seed = [count, int(requests.input_tokens.sum()), int(requests.output_tokens.sum())]
    luck = (np.random.default_rng(seed).standard_normal(count) * (not alike)).tolist()
    columns = zip(
        requests.arrival_s.tolist(),
        requests.input_tokens.tolist(),
        requests.output_tokens.tolist(),
        requests.cached_tokens.tolist(),
        requests.blocks or [()] * count,
        requests.block_sizes or [()] * count,
        strict=True,
    )
    return [
        Job(index, arrival, given, asked, cached, tuple(ids), tuple(sizes), luck=luck[index])
        for index, (arrival, given, asked, cached, ids, sizes) in enumerate(columns)
    ]
