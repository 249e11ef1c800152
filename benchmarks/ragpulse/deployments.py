"""Deployments made of counted replicas, and what the day's requests meet on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from costmodel.layout.layout import Layout
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Limits, Slo, Workload
from costmodel.replay.fleet import Tables
from costmodel.replay.met import Met
from costmodel.replay.replay import Course, replay
from costmodel.replay.router import Routing
from solver.clock import Clock
from solver.fleet.asked import fleet_of
from solver.fleet.items import Item
from solver.place.assemble import assemble
from solver.rounds import Search
from solver.shapes.pools import Pool
from solver.shapes.shapes import ROLES

TTFT_S, TPOT_S = 1.0, 0.05
#: every so manyth of these stretches is a part of the day
STRETCH_S, EVERY = 1800.0, 4
#: nodes of eight H200 on which replicas may stand
NODES = 4

#: replicas: their role, chips of each, how many
Counts = tuple[tuple[str, int, int], ...]


def scenario(
    requests: Requests, known: float, chunk_tokens: int = 8192, nodes: int = NODES
) -> Scenario:
    """DeepSeek-V3 on H200 at the requests' mean lengths, of which a share of the prompt is known."""
    given = round(float(requests.input_tokens.mean()))
    return Scenario(
        model="deepseek-v3",
        cluster=f"hgx-h200@{nodes}",
        workload=Workload(
            input_tokens=given,
            output_tokens=round(float(requests.output_tokens.mean())),
            cached_tokens=round(known * given),
        ),
        slo=Slo(ttft=TTFT_S, tpot=TPOT_S),
        kv_dtype="fp8",
        pay="used",
        limits=Limits(prefill_chunk_tokens=chunk_tokens),
    )


def chips_of(counts: Counts) -> int:
    """GPUs of a deployment."""
    return sum(chips * many for _, chips, many in counts)


@dataclass
class Deployments:
    """Deployments of one question, each replayed once. ``best``: of each role and number of chips, the item that
    serves most by the search's bounds."""

    question: Scenario
    requests: Requests
    search: Search = field(init=False)
    best: dict[tuple[str, int], Item] = field(init=False)
    met: dict[tuple[Counts, Routing, bool], Met] = field(default_factory=dict)
    tables: Tables = field(default_factory=Tables)

    def __post_init__(self) -> None:
        self.search = Search(resolve_instance(self.question), Clock(None), 0.01, 0, None)
        self.best = {}
        for item in self.search.items.best():
            key = (ROLES[item.role], item.chips)
            if key not in self.best or self.best[key].requests_per_s < item.requests_per_s:
                self.best[key] = item

    def rate(self, role: str, chips: int) -> float:
        """Requests per second that a replica serves at most; 0 where none stands on so many chips."""
        item = self.best.get((role, chips))
        return 0.0 if item is None else item.requests_per_s

    def shape(self, role: str, chips: int) -> str:
        """The widths of a replica."""
        row = self.search.shapes.row(self.best[role, chips].shape)
        return f"tp {row['tp']} x dp {row['attention_dp']} x pp {row['pp']}"

    def strongest(self, role: str, chips: int, most: int) -> Counts:
        """Of equal replicas of up to ``most`` chips on so many chips, those that serve most together."""
        ways = [
            (self.rate(role, each) * (chips // each), each)
            for each in range(1, min(chips, most) + 1)
            if chips % each == 0
        ]
        rate, each = max(ways, default=(0.0, 0))
        return ((role, each, chips // each),) if rate > 0 else ()

    def layout(self, counts: Counts) -> Layout:
        """The deployment on named chips, widest replicas first. Raises ``ValueError`` where it does not fit."""
        search = self.search
        items = [self.best[role, chips] for role, chips, many in counts for _ in range(many)]
        search.place(sorted({item.shape for item in items} - set(search.placed.realised)))
        pools = [pool for one in search.classes for pool in one.pools]
        left = {pool.domain: search.classes[0].size for pool in pools}
        stands = []
        for item in sorted(items, key=lambda one: -max(chips for _, chips in one.parts)):
            item = search.placed.sending(item)
            homes = list(_homes(item, pools, left))
            stands.append((item, tuple(homes)))
        fleet = fleet_of(stands, search.classes)
        return assemble(search.instance, fleet, search.placed)

    def knows(self, counts: Counts, *, part: bool) -> bool:
        """Whether a deployment was replayed."""
        return (counts, "prefix-aware", part) in self.met

    def replayed(
        self, counts: Counts, *, routing: Routing = "prefix-aware", part: bool = False
    ) -> Met:
        """What the day's requests meet, or those of a part of it."""
        key = (counts, routing, part)
        if key not in self.met:
            self.met[key] = self.of(counts, self.part if part else self.requests, routing)
        return self.met[key]

    def of(self, counts: Counts, requests: Requests, routing: Routing = "prefix-aware") -> Met:
        """What some requests meet."""
        instance = self.search.instance
        course = Course.of(instance, routing=routing)
        return replay(instance, self.layout(counts), requests, course, self.tables)

    @cached_property
    def part(self) -> Requests:
        """Every :data:`EVERY`-th stretch of the day, with its own times."""
        stretch = self.requests.arrival_s // STRETCH_S
        return self.requests.rows(np.flatnonzero(stretch % EVERY == 1))


def _homes(item: Item, pools: Sequence[Pool], left: dict[int, int]) -> Iterator[Pool]:
    """Pools with room for each part of a replica, fullest first; what it takes is taken off ``left``."""
    taken: set[int] = set()
    for _, chips in item.parts:
        fits = [p for p in pools if left[p.domain] >= chips and p.domain not in taken]
        if not fits:
            raise ValueError(f"no room for {item.chips} chips on {len(pools)} nodes")
        home = min(fits, key=lambda one: left[one.domain])
        left[home.domain] -= chips
        taken.add(home.domain)
        yield home
