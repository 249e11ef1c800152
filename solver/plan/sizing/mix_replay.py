"""A mix replayed as a whole: its requests are dealt out by chance, and each kind's layout meets the targets with its share.

Which kind a request goes to depends on nothing but a seed, so each share is traffic of its own, thinner than the whole, and is replayed alone.
Percentiles of all requests are those of all shares together, not the worst of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

import numpy as np

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Slo
from costmodel.replay.fleet import Tables
from costmodel.replay.met import Met
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import Targets, judged, judged_together
from solver.plan.sizing.for_traffic import BEYOND
from solver.plan.sizing.peak import DRAWS, at_peak, once_filled, p99, requests_at_peak, takes_s
from solver.traffic.asked import Asked
from solver.verify import ROUNDING

#: requests of the smallest share, and of all together at most: a 99th percentile of fewer says little
LEAST, _MOST = 2_000, 100_000


@dataclass(frozen=True)
class Part:
    """Units of a kind with the layout that they run, and the requests/s of their share. ``instance``: the question that it answers."""

    kind: str
    units: int
    requests_per_s: float
    instance: Instance
    layout: Layout
    tables: Tables = field(default_factory=Tables, compare=False)


@dataclass(frozen=True)
class PartReplay:
    """What the share of one kind met: the worse draw. ``goodput``: part of its ``requests`` that meet both targets."""

    part: Part
    share: float
    requests: int
    ttft_p99_s: float
    tpot_p99_s: float
    goodput: float


@dataclass(frozen=True)
class MixReplay:
    """What requests at the peak met on what the loss of ``lost`` leaves, every kind's share within the targets.

    Figures are those of all ``requests`` together, of the worse draw.
    """

    lost: dict[str, int]
    parts: tuple[PartReplay, ...]
    requests: int
    ttft_p99_s: float
    tpot_p99_s: float
    goodput: float


@dataclass(frozen=True)
class Missed:
    """The first part whose share missed a target; ``requests`` that were judged until then."""

    part: Part
    requests: int


class Draws(Protocol):
    """Requests of all kinds together at the peak, drawn anew by number, and how a share of them is judged."""

    @property
    def targets(self) -> Targets:
        """What each share has to meet."""

    def drawn(self, number: int, parts: Sequence[Part]) -> Requests:
        """One draw, long enough for some parts."""

    def course(self, instance: Instance) -> Course:
        """How a share is run."""

    def judged(self, met: Met, parts: Sequence[Part]) -> Met:
        """With the times of the requests that count."""


@dataclass(frozen=True)
class TrafficDraws:
    """Draws of some traffic by which no layout was chosen; ``asked``: at its peak."""

    asked: Asked
    seed: int

    @property
    def targets(self) -> Targets:
        """What each share has to meet."""
        return self.asked.targets

    def drawn(self, number: int, parts: Sequence[Part]) -> Requests:
        """A draw of which the smallest part has enough requests for a 99th percentile."""
        rates = [part.requests_per_s for part in parts]
        return self.of_share(number, min(rates) / sum(rates))

    def of_share(self, number: int, share: float) -> Requests:
        """A draw of which such a share is enough."""
        least = min(_MOST, ceil(LEAST / share))
        return self.asked.another(self.seed, BEYOND + number, least)

    def course(self, instance: Instance) -> Course:
        """As a search for traffic judges."""
        return self.asked.course(instance, self.seed)

    def judged(self, met: Met, parts: Sequence[Part]) -> Met:
        """All of them."""
        return met


@dataclass(frozen=True)
class RandomDraws:
    """Poisson arrivals at the peak, as :func:`solver.plan.sizing.peak.peak_replay` has them for one kind."""

    rate: float
    slo: Slo
    seed: int

    @property
    def targets(self) -> Targets:
        """Targets on means, judged as 99th percentiles."""
        return Targets(self.slo.ttft, self.slo.tpot)

    def drawn(self, number: int, parts: Sequence[Part]) -> Requests:
        """As many as fill the fleet and some more."""
        count = requests_at_peak(self.rate, self._fills_s(parts))
        return at_peak(parts[0].instance, self.rate, count, self.seed + number)

    def course(self, instance: Instance) -> Course:
        """With the engine's habits."""
        return Course.of(instance)

    def judged(self, met: Met, parts: Sequence[Part]) -> Met:
        """Those that come once the first could have ended."""
        return once_filled(met, self._fills_s(parts))

    def _fills_s(self, parts: Sequence[Part]) -> float:
        return max(takes_s(part.instance, part.layout) for part in parts)


def replay_mix(
    lost: dict[str, int], parts: Sequence[Part], draws: Draws, seed: int
) -> MixReplay | Missed:
    """Replay all shares on every draw, or up to the first part whose share misses a target.

    ``parts`` have the peak between them.
    """
    total = sum(part.requests_per_s for part in parts)
    shares = [part.requests_per_s / total for part in parts]
    found, requests = list[list[Met]](), 0
    for draw in range(DRAWS):
        whole, mets = draws.drawn(draw, parts), list[Met]()
        for part, own in zip(parts, whole.split(shares, seed + draw), strict=True):
            course = draws.course(part.instance)
            if course.under_way is not None and _overloaded(part):
                return Missed(part, requests)
            met = replay(part.instance, part.layout, own, course, part.tables)
            mets.append(draws.judged(met, parts))
            requests += len(mets[-1].arrival_s)
            if not judged(mets[-1], draws.targets).meets:
                return Missed(part, requests)
        found.append(mets)
    by_part = zip(parts, shares, zip(*found, strict=True), strict=True)
    return MixReplay(
        lost,
        tuple(PartReplay(part, share, *_met([[one] for one in own], draws.targets)) for part, share, own in by_part),
        *_met(found, draws.targets),
    )  # fmt: skip


def _met(draws: Sequence[Sequence[Met]], targets: Targets) -> tuple[int, float, float, float]:
    """Requests of all draws, and of the worse draw P99 of TTFT and TPOT in seconds and the share that meets both targets.

    Each draw has several replays, whose requests are judged together.
    """
    ttft = [np.concatenate([met.ttft for met in own]) for own in draws]
    tpot = [np.concatenate([met.tpot for met in own]) for own in draws]
    good = [judged_together(own, targets).good for own in draws]
    return sum(map(len, ttft)), max(map(p99, ttft)), max(map(p99, tpot)), min(good)


def _overloaded(part: Part) -> bool:
    """Whether a part carries less than its share in a steady state, which a fleet busy from the start hides."""
    priced = evaluate(part.instance, part.layout).priced
    return priced.requests_per_s < part.requests_per_s * (1 - ROUNDING)
