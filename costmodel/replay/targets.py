"""Percentile targets: whether a replay met them, what was late, and when one is missed whatever comes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from costmodel.replay.job import Job
from costmodel.replay.met import Met
from costmodel.tolerance import exceeds

#: share of requests that a 99th percentile leaves out
BEYOND_P99 = 0.01


@dataclass(frozen=True)
class Targets:
    """99th percentiles of TTFT and TPOT in seconds, and the share of requests that meets both (``None``: no target)."""

    ttft_p99_s: float | None = None
    tpot_p99_s: float | None = None
    goodput: float | None = None

    @property
    def beyond(self) -> float:
        """Share of requests that may miss a target: that of the percentile, or what goodput leaves where that is less."""
        return BEYOND_P99 if self.goodput is None else min(BEYOND_P99, 1.0 - self.goodput)

    @property
    def exempt(self) -> float:
        """Share of requests that may miss the TPOT target."""
        return 1.0 if self.tpot_p99_s is None else self.beyond


@dataclass(frozen=True)
class Judged:
    """What a replay says of targets: shares of requests with a late first token, with slow tokens, with neither.

    ``waited``: share of requests whose first token was not late before it had to wait where they decode.
    """

    late_first: float
    slow_tokens: float
    good: float
    targets: Targets
    waited: float = 0.0

    @property
    def first_missed(self) -> bool:
        """Whether too many first tokens came late."""
        return exceeds(self.late_first, _allowed(self.targets, self.targets.ttft_p99_s))

    @property
    def tokens_missed(self) -> bool:
        """Whether too many requests had slow tokens."""
        return exceeds(self.slow_tokens, _allowed(self.targets, self.targets.tpot_p99_s))

    @property
    def both_missed(self) -> bool:
        """Whether too few requests met both targets."""
        wanted = self.targets.goodput
        return wanted is not None and exceeds(1.0 - self.good, 1.0 - wanted)

    @property
    def meets(self) -> bool:
        """Whether every target is met."""
        return not (self.first_missed or self.tokens_missed or self.both_missed)


def _allowed(targets: Targets, target_s: float | None) -> float:
    return 1.0 if target_s is None else BEYOND_P99


def judged(met: Met, targets: Targets) -> Judged:
    """Shares of a replay's requests beyond the targets; requests of one output token have no TPOT."""
    return judged_together([met], targets)


def judged_together(parts: Sequence[Met], targets: Targets) -> Judged:
    """The same of all requests of several replays."""
    arrival_s, sent_s, ttft, tpot = (
        np.concatenate([getattr(met, name) for met in parts])
        for name in ("arrival_s", "sent_s", "ttft", "tpot")
    )
    first = ttft > (np.inf if targets.ttft_p99_s is None else targets.ttft_p99_s)
    tokens = tpot > (np.inf if targets.tpot_p99_s is None else targets.tpot_p99_s)
    handed = (sent_s >= 0.0) & (sent_s - arrival_s <= (targets.ttft_p99_s or 0.0))
    return Judged(
        late_first=float(first.mean()),
        slow_tokens=float(tokens.mean()),
        good=float((~first & ~tokens).mean()),
        targets=targets,
        waited=float((first & handed).mean()),
    )


@dataclass
class Patience:
    """Requests counted while they run: of ``requests`` in all, those known to have a late first token, slow tokens, or either.

    ``waited``: of those with a late first token, those that were late only where they decode.
    """

    targets: Targets
    requests: int
    late: int = 0
    waited: int = 0
    slow: int = 0
    either: int = 0
    #: the least numbers of them with which a target is missed
    _missed: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        least = [
            bisect_left(range(self.requests + 1), True, key=partial(self._misses, which))
            for which in range(3)
        ]
        self._missed = least[0], least[1], least[2]

    def sent(self, job: Job) -> None:
        """The KV of a request is where it decodes: its first token comes no sooner."""
        if self._late(job, job.sent_s):
            self.late += 1
            self.either += 1

    def ended(self, job: Job) -> None:
        """A request has its last token."""
        late = self._late(job, job.first_s)
        if late and not (job.sent_s >= 0.0 and self._late(job, job.sent_s)):
            self.late += 1
            self.waited += job.sent_s >= 0.0
            self.either += 1
        if self._slow(job):
            self.slow += 1
            self.either += not late

    @property
    def so_far(self) -> Judged:
        """The shares as if all that is not known yet met the targets."""
        return self._judged(self.late, self.slow, self.either, self.waited)

    @property
    def over(self) -> bool:
        """Whether a target is missed whatever comes."""
        late, slow, either = self._missed
        return self.late >= late or self.slow >= slow or self.either >= either

    def _misses(self, which: int, number: int) -> bool:
        """Whether so many late, slow or either ones (``which``: 0, 1, 2) miss their own target."""
        found = self._judged(*(number if which == one else 0 for one in range(3)))
        return not found.meets

    def _judged(self, late: int, slow: int, either: int, waited: int = 0) -> Judged:
        count = self.requests
        good = 1.0 - either / count
        return Judged(late / count, slow / count, good, self.targets, waited / count)

    def _late(self, job: Job, at: float) -> bool:
        most = self.targets.ttft_p99_s
        return most is not None and at - job.arrival_s > most

    def _slow(self, job: Job) -> bool:
        most = self.targets.tpot_p99_s
        if most is None or job.output_tokens < 2:
            return False
        return (job.ends_s - job.first_s) / (job.output_tokens - 1) > most
