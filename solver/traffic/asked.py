"""What is asked of a layout for traffic, and the steady questions that stand for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Literal

import numpy as np

from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.spread import Spread, any_left, spread_of
from costmodel.question.traffic.requests import Requests
from costmodel.question.traffic.reuse import known_before
from costmodel.question.workload import Slo, Workload
from costmodel.replay.replay import Course
from costmodel.replay.router import Routing
from costmodel.replay.targets import Targets
from solver.bounds.unlike import sizes
from solver.traffic.bounds.windows import least_share
from topology.errors import InstanceError, Problem, option

#: requests of a replay at least, and how many times the longest answers it lasts at least
_REQUESTS, _ANSWERS = 2_000, 3.0
#: requests of a replay at most
_MOST = 20_000
#: replays that a layout has to pass beside that of the traffic as it is: more of shorter ones
_LEAST_AGAIN, _MOST_AGAIN, _TOGETHER = 2, 6, 50_000
#: the same of the draws on which an answer is confirmed
_LEAST_FRESH, _MOST_FRESH, _TOGETHER_FRESH = 4, 14, 150_000
#: draws after these that others may use
_APART = 1_000
#: draws of which an answer may miss one in twenty
_COUNTED = 20


#: what the bound of an answer for traffic holds for
COVERS = (
    "every order in which requests are served, and pieces of prompts: in the long run each pool computes all prompts, "
    "and decodes in passes of now fewer, now more sequences, whose tokens take no longer than the TPOT target on average, "
    "but for the heaviest requests that may miss it: "
    "these may have passes of their own, as long as HBM allows; each replica has its share of all lengths; a mixed replica "
    "has its share of the requests as they come, and computes prompts and decodes in turns",
    "not covered: passes that hold prompts beside decoding sequences; "
    f"batches that take turns are looked at in {len(list(sizes(*(np.ones(1),) * 3)))} sizes each, and others may serve a few per cent more",
)
#: and of prefixes, where prompts are computed whole and where they are not
WHOLE = ("not covered: prompts of which a prefix is reused",)
REUSED = (
    "prefixes: each prompt is computed but for what a cache that never forgets has when it comes, in the order of the "
    "requests as they are",
)

#: where blocks of earlier prompts are kept: nowhere, in HBM, in the memory of hosts too; ``any``: of the last two the cheaper
Kept = Literal["off", "hbm", "host", "any"]


@dataclass(frozen=True)
class Asked:
    """Requests at their mean rate; targets; the peak as a multiple of that rate; chips that may be lost.

    ``spare``: ``node`` or ``rack`` (any one of them), or a number of chips; 0 for none. ``prefixes``: where blocks of
    earlier prompts are kept; ``off`` computes every prompt whole.
    """

    requests: Requests
    targets: Targets
    peak: float = 1.0
    spare: str | int = 0
    prefixes: Kept = "off"

    @cached_property
    def steady(self) -> Requests:
        """The requests as steady questions see them: a prompt has what a cache that never forgets would know of it."""
        if self.prefixes == "off":
            return self.requests
        own = self.requests
        known = np.maximum(known_before(own), own.cached_tokens)
        return replace(own.whole_prompts(), cached_tokens=np.minimum(known, own.input_tokens - 1))

    @property
    def peak_rate(self) -> float:
        """Requests per second for which the targets must hold."""
        return self.requests.rate * self.peak

    @property
    def arriving(self) -> Requests:
        """Those at the rate for which the targets must hold."""
        return self.steady.at_rate(self.peak_rate)

    def runs(self, seed: int) -> list[Requests]:
        """What layouts are chosen by: the requests as they are, and stretches of them drawn again."""
        times = min(_MOST_AGAIN, max(_LEAST_AGAIN, _TOGETHER // self._count))
        return [
            self.requests.at_rate(self.peak_rate),
            *self._again(range(seed + 1, seed + 1 + times)),
        ]

    def fresh(self, seed: int) -> list[Requests]:
        """What an answer is confirmed on: draws by which no layout was chosen."""
        times = min(_MOST_FRESH, max(_LEAST_FRESH, _TOGETHER_FRESH // self._count))
        first = seed + 1 + _MOST_AGAIN
        return self._again(range(first, first + times))

    def another(self, seed: int, number: int, least: int = 0) -> Requests:
        """A draw beyond those, ``number`` 0 or more of them, of so many requests at ``least``."""
        first = seed + 1 + _MOST_AGAIN + _MOST_FRESH + number
        return self._again(range(first, first + 1), least)[0]

    def likely(self, seed: int) -> list[Requests]:
        """As many other draws as an answer is confirmed on: what those will ask for is told by these."""
        return [self.another(seed, _APART + number) for number in range(len(self.fresh(seed)))]

    def counted(self, seed: int) -> list[Requests]:
        """Draws on which an answer is counted that missed one of the fresh ones: nothing was chosen by any of them."""
        return [self.another(seed, 2 * _APART + number) for number in range(_COUNTED)]

    def course(self, instance: Instance, seed: int) -> Course:
        """How requests are replayed. Where so many are under way at once that a draw would not fill the fleet, it is busy from the start."""
        routing: Routing = "least-loaded" if self.prefixes == "off" else "prefix-aware"
        own = Course.of(instance, routing=routing, host_tier=self.prefixes == "host")
        return replace(own, under_way=seed if self._enough > _MOST else None)

    @property
    def _count(self) -> int:
        """Requests of a draw."""
        return min(_MOST, max(_REQUESTS, self._enough))

    @cached_property
    def _enough(self) -> int:
        """Requests that come while a fleet fills and some times longer."""
        slowest = float(np.sort(self.requests.output_tokens)[int(0.99 * (len(self.requests) - 1))])
        lasts = _ANSWERS * (
            slowest * (self.targets.tpot_p99_s or 0.0) + (self.targets.ttft_p99_s or 0.0)
        )
        return ceil(lasts * self.peak_rate)

    def _again(self, seeds: range, least: int = 0) -> list[Requests]:
        own, count = self.requests.at_rate(self.peak_rate), max(self._count, least)
        # stretches drawn anew have another mean rate than the whole
        return [own.again(count, seed).at_rate(self.peak_rate) for seed in seeds]


@dataclass(frozen=True)
class Questions:
    """Steady questions: at the mean lengths, at the spread of lengths, and what every order of requests has to carry.

    ``exempt``: share of the requests whose decoding the last one leaves out. ``share``: what the requests cost over what that one
    prices, at least (:func:`solver.traffic.bounds.windows.least_share`); it asks for so much of the rate, as layouts may serve
    more than it says, and its cost is to be taken so many times.
    """

    mean: Instance
    spread: Instance
    every: Instance
    exempt: float
    share: float


def questions(scenario: Scenario, asked: Asked, like: Questions | None = None) -> Questions:
    """The steady questions of some traffic, all on one cluster, whose rates are worked out once.

    ``like``: other questions about the same cluster. Raises ``InstanceError`` for what is not searched with traffic.
    """
    problems = [
        Problem(option("traffic"), f"{name} {wrong}")
        for name, wrong, told in (
            ("engine any", "is not searched with traffic: name one engine", scenario.engine == "any"),
            ("kv_tiers", "are not replayed: leave them out", bool(scenario.kv_tiers)),
            ("apart", "is not replayed: leave it out", bool(scenario.apart)),
        )
        if told
    ]  # fmt: skip
    if problems:
        raise InstanceError(problems)
    requests, targets = asked.steady, asked.targets
    exempt, tpot = targets.exempt if targets.exempt < 1.0 else 0.0, targets.tpot_p99_s
    if exempt and not any_left(requests, exempt):
        exempt, tpot = 0.0, None  # no answer for which the target has to hold has a second token
    slo = Slo(ttft=targets.ttft_p99_s, tpot=tpot)
    base = scenario.model_copy(update={"rate": asked.peak_rate, "pay": "used", "slo": slo})
    every = spread_of(requests, exempt, in_turns=True)
    whole = resolve_instance(base).workload
    mean, own, least = (
        resolve_instance(base.model_copy(update={"workload": _workload(whole, requests, spread)} | slo))
        for spread, slo in (
            (None, {}),
            (spread_of(requests), {}),
            (every, {"slo": Slo(tpot=tpot)}),
        )
    )  # fmt: skip
    cluster = mean.cluster if like is None else like.mean.cluster
    mean, own, least = (replace(one, cluster=cluster) for one in (mean, own, least))
    share = least_share(least, requests, exempt)
    if share < 1.0:
        fewer = least.scenario.model_copy(update={"rate": asked.peak_rate * share})
        least = replace(least, scenario=fewer)
    return Questions(mean, own, least, exempt, share)


def _workload(base: Workload, requests: Requests, spread: Spread | None) -> Workload:
    """A workload with the mean lengths of some requests, and their spread."""
    lengths = {
        "input_tokens": max(1, round(float(requests.input_tokens.mean()))),
        "output_tokens": max(1, round(float(requests.output_tokens.mean()))),
        "cached_tokens": int(requests.cached_tokens.mean()),
    }
    return base.model_copy(
        update={**lengths, "name": "custom", "spread": spread, "hold_s": None, "return_rate": None}
    )
