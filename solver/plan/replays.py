"""Every hour of a plan replayed after every loss: what a model's requests meet on the groups that are left.

Requests are a draw of the model's traffic by which no layout was chosen; without traffic, they have the workload's lengths and come
evenly, as the steady state has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import ceil

from costmodel.question.instance import Instance
from costmodel.question.traffic.description import LEAST_RATE, Arrivals, steady
from costmodel.replay.fleet import Tables
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import Targets, judged
from solver.clock import Clock
from solver.plan.bounds.most import asked_of
from solver.plan.day import DayPlan
from solver.plan.groups import chips_off, copies, less
from solver.traffic.asked import Asked

#: seconds of even arrivals that are replayed, and requests at most
_STEADY_S, _MOST = 300.0, 20_000


@dataclass(frozen=True)
class HourReplay:
    """Groups of one column that are left in an hour after a loss, at their share of the model's highest rate.

    ``lost``: units of any column that are gone; ``part``: which of the different losses of a unit a group keeps a part after, -1: groups
    are lost whole. ``ttft_p99_s``, ``tpot_p99_s``: what was met; ``meets`` both targets.
    """

    hour: int
    model: str
    column: str
    groups: int
    lost: int
    requests_per_s: float
    ttft_p99_s: float
    tpot_p99_s: float
    meets: bool
    part: int = -1


#: groups of a column that are left, and which loss one of them keeps a part after (-1: none has)
Left = tuple[int, int]
#: what a replay met: 99th percentiles of TTFT and TPOT in seconds, and whether the targets are met
Met = tuple[float, float, bool]


@dataclass
class Replays:
    """Replays of what losses leave, those that are alike made once; columns with one layout are alike."""

    clock: Clock
    seed: int = 0
    _known: dict[tuple[int, Left, float], Met] = field(default_factory=dict)
    _asked: dict[int, Asked | None] = field(default_factory=dict)
    _tables: Tables = field(default_factory=Tables)

    def of(self, found: DayPlan) -> tuple[HourReplay, ...]:
        """All hours of a plan after all losses, as many as the clock allows. Requests go to columns in the share of what they carry."""
        listed: list[HourReplay] = []
        for m, model in enumerate(found.asked.models):
            for hour, lost, left in _left(found, m):
                carried = {
                    c: found.hours.columns[c].left(n, int(part >= 0))
                    for c, (n, part) in left.items()
                }
                for c, (n, part) in left.items():
                    rate = found.hours.demand[m][hour] * carried[c] / sum(carried.values())
                    if rate <= 0:
                        continue
                    met = self.met(found, c, (n, part), rate)
                    if met is None:
                        return tuple(listed)
                    own = found.hours.columns[c]
                    listed.append(
                        HourReplay(hour, model.called, own.name, n, lost, rate, *met, part)
                    )
        return tuple(listed)

    def met(self, found: DayPlan, column: int, groups: Left, rate: float) -> Met | None:
        """What so many groups meet at a rate; ``None`` where the time was over before it was known."""
        key = id(found.layouts[column]), groups, round(rate, 9)
        if key not in self._known:
            if self.clock.over:
                return None
            own = found.hours.columns[column].model
            if own not in self._asked:
                model = found.asked.models[own]
                self._asked[own] = None if model.traffic is None else asked_of(model, self.seed)
            asked = self._asked[own]
            self._known[key] = _met(found, asked, column, groups, rate, self.seed, self._tables)
        return self._known[key]

    def met_below(self, found: DayPlan, column: int, groups: Left, rate: float) -> float:
        """The highest rate below another that so many groups are known to meet; 0 where none is."""
        own = id(found.layouts[column]), groups
        return max(
            (at for (*alike, at), met in self._known.items() if tuple(alike) == own and met[2] and at < rate),
            default=0.0,
        )  # fmt: skip


def to_replay(found: DayPlan) -> int:
    """How many replays all hours and losses of a plan take."""
    return sum(len(left) for m in range(len(found.asked.models)) for *_, left in _left(found, m))


def _left(found: DayPlan, model: int) -> list[tuple[int, int, dict[int, Left]]]:
    """Hours in which a model is asked for, with the units that each different loss takes and the groups that it leaves."""
    listed = []
    for hour, groups in enumerate(found.planned.plan.groups):
        if not found.hours.demand[model][hour]:
            continue
        seen: list[dict[int, Left]] = []
        for lost in found.hours.losses[model]:
            if any(groups[c] < gone for c, gone in lost.items()):
                continue
            for left in _parts(found, groups, lost):
                if left not in seen:
                    seen.append(left)
                    listed.append((hour, sum(lost.values()), left))
    return listed


def _parts(
    found: DayPlan, groups: Sequence[int], lost: Mapping[int, int]
) -> Iterator[dict[int, Left]]:
    """What a loss leaves: of columns whose groups keep a part, each part that the last unit lost may leave."""
    ways: list[list[tuple[int, Left]]] = []
    for c, gone in lost.items():
        kept = range(len(found.layouts[c].kept)) if gone else ()
        left = [(groups[c] - gone + 1, part) for part in kept] or [(groups[c] - gone, -1)]
        ways.append([(c, one) for one in left])
    for way in product(*ways):
        yield {c: left for c, left in way if left[0] > 0}


def _met(
    found: DayPlan,
    asked: Asked | None,
    column: int,
    groups: Left,
    rate: float,
    seed: int,
    tables: Tables,
) -> Met:
    units = found.asked.units[found.hours.columns[column].kind]
    off, _ = chips_off(units, found.asked.power_overhead)
    own, (number, part) = found.layouts[column], groups
    instance, layout = copies(own, number, units.cluster, off)
    if part >= 0:
        layout = less(layout, own.kept[part], len(own.layout.replicas))
    course = Course.of(instance)
    if asked is None:
        count = ceil(rate * _STEADY_S)
        even = Arrivals(process="constant", rate=max(rate, LEAST_RATE))
        requests = steady(instance.workload, even, min(_MOST, count), seed)
        targets = _steady_targets(instance)
        course = replace(course, under_way=seed if count > _MOST else None)
    else:
        at = replace(asked, requests=asked.requests.at_rate(rate))
        requests, targets, course = at.another(seed, 0), at.targets, at.course(instance, seed)
    met = replay(instance, layout, requests, course, tables)
    return met.ttft_s.p99, met.tpot_s.p99, judged(met, targets).meets


def _steady_targets(instance: Instance) -> Targets:
    return Targets(instance.slo.ttft, instance.slo.tpot)
