"""Units that several models share within an hour: each has a layout on some of the chips, as columns of a plan.

Each model is searched on one, two, three ... chips of a unit (in eighths of a larger one), until they carry the most that it is ever
asked for. Of up to three models all parts that fill a unit may stand together; of more models those that fill units hour by hour, the
largest first. Each such way is judged: every layout where the others' chips are taken, and what all send between domains together.
A unit is loaded and left as a whole, and a lost one takes something from all of its models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil

from costmodel.evaluate import Evaluation, evaluate
from costmodel.plan.hours import Column, Hours
from costmodel.plan.question import PlanQuestion, rates_of
from costmodel.question.instance import resolve_instance
from costmodel.together.judge import headroom_of
from solver.clock import Clock
from solver.plan.groups import Start, UnitLayout, moved
from solver.plan.offers import Offers
from solver.plan.units import layout_on
from solver.verify import ROUNDING
from topology import load_cluster
from topology.cluster import Cluster
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime, Problem

#: parts of a unit whose sizes are tried; models of which all that fill a unit are
_PARTS, _EVERY = 8, 3
#: units up to which models share them unless a question says otherwise
_FEW = 8
#: numbers of groups to choose from, over all hours and columns, with those of parts
MOST_CHOICES = 40_000

#: by model, layouts on so many chips of a unit, the first ones
Parts = Mapping[int, Mapping[int, UnitLayout]]
#: models and chips of each, in the order in which they stand on a unit
Way = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Shared:
    """Columns of units that models share, with their layouts."""

    columns: tuple[Column, ...] = ()
    layouts: tuple[UnitLayout, ...] = ()

    def no_less(self, offers: Offers) -> Offers:
        """The offers, where parts of a unit may run what their bounds do not look at: a unit then carries at least as much for its size."""
        found = dict(offers)
        for column, one in zip(self.columns, self.layouts, strict=True):
            key = column.model, column.kind
            own, each = found[key], one.requests_per_s / one.units
            if each > min((own.most_requests_per_s, *own.most_of_few[1:2])):
                most = max(each, own.most_requests_per_s)
                found[key] = replace(own, most_requests_per_s=most, most_of_few=(0.0,))
        return found


def may_share(asked: PlanQuestion) -> bool:
    """Whether models may share units: as the question says, or where there are few and no model has traffic.

    Raises ``InstanceError`` where a question that says so is too large.
    """
    if len(asked.models) < 2 or asked.share is False:
        return False
    chips = sum(one.count * len(load_cluster(one.cluster).chips) for one in asked.units)
    choices = len(rates_of(asked)[0]) * len(asked.models) * (chips + len(asked.units))
    if asked.share and choices > MOST_CHOICES:
        message = (
            f"models share units of up to {MOST_CHOICES:,} choices (hours x models x chips); here are {choices:,}: leave it out, or "
            "plan fewer hours or units"
        )
        raise InstanceError(Problem(f"{asked.name}: share", message))
    few = sum(one.count for one in asked.units) <= _FEW and choices <= MOST_CHOICES
    return asked.share or (few and all(one.traffic is None for one in asked.models))


def shared_columns(
    asked: PlanQuestion,
    hours: Hours,
    off: Sequence[int],
    *,
    clock: Clock,
    gap: float,
    seed: int,
    on_progress: Callable[[str], None],
) -> Shared:
    """Columns of every kind of unit that two or more models can share, as far as the time allows."""
    found = Shared()
    start = Start(asked.load_from, asked.load_extra)
    for k, units in enumerate(asked.units):
        ids = [placed.id for placed in load_cluster(units.cluster).chips]
        ids = ids[: len(ids) - off[k]]
        parts: dict[int, dict[int, UnitLayout]] = {}
        for m, model in enumerate(asked.models):
            most = max(hours.demand[m])
            if most <= 0:
                continue
            on_progress(f"{model.called} on chips of {units.called}")
            parts[m] = {}
            for chips in _sizes(len(ids)):
                with suppress(NoFeasibleLayout, NoLayoutInTime):
                    one = layout_on(
                        model, units, 1, off[k], start,
                        clock=clock, gap=gap, seed=seed, taken=tuple(ids[chips:]),
                    )  # fmt: skip
                    best = max((own.requests_per_s for own in parts[m].values()), default=0.0)
                    if one is not None and one.requests_per_s > best:
                        parts[m][chips] = one
                if clock.over or any(own.requests_per_s >= most for own in parts[m].values()):
                    break
        for way in _ways(hours, k, {m: own for m, own in parts.items() if own}, len(ids)):
            stood = _stand(way, parts, ids)
            more = None if stood is None else _columns(asked, hours, k, way, stood)
            if more is not None:
                found = Shared(found.columns + more.columns, found.layouts + more.layouts)
            wider = replace(hours, columns=hours.columns + found.columns)
            if wider.choices > MOST_CHOICES // 2:
                return found
    return found


def _sizes(chips: int) -> range:
    """Chips of parts of a unit with so many."""
    step = ceil(chips / _PARTS)
    return range(step, chips, step)


def _ways(hours: Hours, kind: int, parts: Parts, chips: int) -> list[Way]:
    """Which parts stand on a unit together, without those that carry no more for any model than others do."""
    if len(parts) <= _EVERY:
        found = [
            way
            for number in range(2, len(parts) + 1)
            for models in combinations(parts, number)
            for way in _filled(models, parts, chips)
        ]
    else:
        found = [
            way for hour in range(hours.hours) for way in _packed(hours, hour, kind, parts, chips)
        ]

    def carried(way: Way) -> list[float]:
        sizes = dict(way)
        return [
            min(parts[m][sizes[m]].requests_per_s, max(hours.demand[m])) if m in sizes else 0.0
            for m in parts
        ]

    ways = {way: carried(way) for way in dict.fromkeys(found)}

    def beaten(way: Way) -> bool:
        """Whether another way carries as much for every model, and more for one; of those alike the first stays."""
        own = ways[way]
        for other, more in ways.items():
            as_much = all(a >= b for a, b in zip(more, own, strict=True))
            if as_much and other != way and (more != own or other < way):
                return True
        return False

    return [way for way in ways if not beaten(way)]


def _filled(models: Sequence[int], parts: Parts, room: int) -> Iterator[Way]:
    """All parts of these models in so many chips, the last of them as large as there is room for."""
    first, *others = models
    sizes = [chips for chips in parts[first] if chips <= room]
    if not others:
        if sizes:
            yield ((first, max(sizes)),)
        return
    for chips in sizes:
        for rest in _filled(others, parts, room - chips):
            yield ((first, chips), *rest)


def _packed(hours: Hours, hour: int, kind: int, parts: Parts, chips: int) -> Iterator[Way]:
    """Of what whole units leave of an hour's rates, the least parts that carry it, dealt to units, the largest first."""
    whole = {
        hours.columns[c].model: hours.columns[c].requests_per_s[1]
        for c in hours.of_kind[kind]
        if hours.columns[c].group == 1 and len(hours.columns[c].requests_per_s) > 1
    }
    needs = []
    for m, own in parts.items():
        left = hours.demand[m][hour]
        if whole.get(m, 0.0) > 0.0:
            left -= int(left / whole[m]) * whole[m]
        least = min((size for size in own if own[size].requests_per_s >= left), default=None)
        if least is not None and left > 0:
            needs.append((least, m))
    units: list[dict[int, int]] = []
    for size, m in sorted(needs, reverse=True):
        for held in units:
            if sum(held.values()) + size <= chips:
                held[m] = size
                break
        else:
            units.append({m: size})
    for held in units:
        if len(held) > 1:
            for m in held:
                room = chips - sum(held.values()) + held[m]
                held[m] = max(size for size in parts[m] if size <= room)
            yield tuple(sorted(held.items()))


def _stand(way: Way, parts: Parts, ids: Sequence[str]) -> list[UnitLayout] | None:
    """The layouts side by side on a unit, each judged beside the others; ``None`` where they break a rule."""
    found: list[UnitLayout] = []
    evaluations: list[Evaluation] = []
    place = 0
    cluster: Cluster | None = None
    for m, chips in way:
        one, own = parts[m][chips], ids[place : place + chips]
        scenario = one.instance.scenario
        others = tuple(chip for chip in ids if chip not in own)
        instance = resolve_instance(scenario.model_copy(update={"taken": others}))
        cluster = instance.cluster
        layout = moved(one.layout, place, one.instance.cluster, cluster)
        evaluation = evaluate(instance, layout)
        steady = evaluation.requests_per_s or 0.0
        # chips elsewhere on the unit may be joined otherwise than those that were searched
        if evaluation.violations or steady < one.steady_requests_per_s * (1 - ROUNDING):
            return None
        found.append(replace(one, instance=instance, layout=layout))
        evaluations.append(evaluation)
        place += chips
    assert cluster is not None
    rates = [one.requests_per_s for one in found]
    together = headroom_of(cluster.uplinks, rates, [own.priced for own in evaluations])
    return found if together >= 1 - ROUNDING else None


def _columns(
    asked: PlanQuestion, hours: Hours, kind: int, way: Way, stood: Sequence[UnitLayout]
) -> Shared | None:
    """A column for each model of a way; ``None`` where a unit takes longer to load or finish than the plan lasts."""
    units = asked.units[kind]
    names = [
        f"{asked.models[m].called} on {chips} {'chip' if chips == 1 else 'chips'}"
        for m, chips in way
    ]
    columns = []
    for place, ((m, _), one) in enumerate(zip(way, stood, strict=True)):
        beside = ", ".join(own for at, own in enumerate(names) if at != place)
        column = Column(
            f"{names[place]} of {units.called}, beside {beside}", m, kind, int(place == 0),
            tuple(n * one.requests_per_s for n in range(units.count + 1)),
            max(own.start_s for own in stood), max(own.drain_s for own in stood), asked.least_hours,
            shared=f"{units.called}: {', '.join(names)}",
        )  # fmt: skip
        columns.append(column)
    if max(columns[0].loading_hours, columns[0].draining_hours) > hours.hours:
        return None
    return Shared(tuple(columns), tuple(stood))
