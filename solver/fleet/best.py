"""The best fleet of given items, with a bound: relaxation first, then the CP-SAT model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from solver.bounds.apart import cost_per_rate_bound, rate_bound
from solver.clock import Clock
from solver.fleet.asked import Fleet, FleetAnswer, Links, Question, Stock, fleet_of
from solver.fleet.items import Item
from solver.fleet.model import Effort, FleetModel
from solver.fleet.patterns import pool_patterns
from solver.fleet.reading import NotPacked, serving
from solver.fleet.variables import NAMED, TABLED
from solver.shapes.pools import Pool, PoolClass
from solver.shapes.shapes import ROLES

#: answers of the aggregated model that may fail to pack before it is given up
_REPACKS = 60
#: replicas of a fleet that are looked at one by one, whether it needs them
_TRIMMED = 128

_PREFILL, _DECODE = ROLES.index("prefill"), ROLES.index("decode")


def solve_fleet(
    items: Sequence[Item],
    classes: Sequence[PoolClass],
    question: Question,
    *,
    clock: Clock,
    time_limit_s: float,
    seed: int,
    accept_gap: float = 0.0,
) -> FleetAnswer:
    """Best fleet of these items (within ``accept_gap``), and a bound valid for every fleet of them."""
    if not items:
        return FleetAnswer(None, float("inf"))
    linked = links_may_bind(items, classes, question.links)
    links = question.links if linked else None
    relaxed, met = rate_bound(items, classes, links)
    wanted = question.rate
    if relaxed <= 0 or (wanted is not None and relaxed < wanted * (1 - 1e-9)):
        return FleetAnswer(None, float("inf"))
    if question.whole and wanted is None:
        floor = question.whole_usd_per_hour / relaxed
    else:
        floor = cost_per_rate_bound(items, classes, links, wanted)
    run = Effort(clock, time_limit_s, seed, accept_gap)
    stock = Stock(items, classes, question, relaxed, met, linked)
    candidates: list[Fleet] = []
    if wanted is not None and any(not c.few or (linked and len(c.pools) > NAMED) for c in classes):
        counted = FleetModel(replace(stock, linked=False, counted=True), run)
        floor = max(floor, counted.least_bound(wanted))
        if 0.0 < floor < float("inf"):
            candidates += _on_few_pools(stock, run, wanted, floor)
        if _close(candidates, stock, run, floor):
            return _answer(items, classes, question, candidates, floor, run)
    if linked:
        candidates += _by_patterns(stock, run, floor)
        few = all(len(c.pools) <= NAMED for c in classes)
        if not few or _close(candidates, stock, run, floor):
            return _answer(items, classes, question, candidates, floor, run)
    # spans make the model much harder: the best fleet without them is found first, so that there is one
    plain = [item for item in items if not item.span]
    if 0 < len(plain) < len(items):
        first = solve_fleet(
            plain, classes, question, clock=clock,
            time_limit_s=time_limit_s / 2, seed=seed, accept_gap=accept_gap,
        ).fleet  # fmt: skip
        candidates += [first] if first is not None else []
    found, floor = _model(stock, run, floor)
    candidates += [found] if found is not None else []
    several = any(len(pool_class.pools) > TABLED for pool_class in classes)
    if several and not linked and not _close(candidates, stock, run, floor):
        # of many items on several pools the model may find only poor fleets
        candidates += _by_patterns(stock, run, floor)
    return _answer(items, classes, question, candidates, floor, run)


def _on_few_pools(stock: Stock, run: Effort, rate: float, floor: float) -> list[Fleet]:
    """The best fleet for a rate on little more pools than hold what the bound pays for, each told apart.

    Fillings of all pools alike are poor fleets where few replicas are enough.
    """
    chips = floor * rate / min(min(own.prices) for own in stock.classes)
    some = [
        replace(own, pools=own.pools[: min(1 + ceil(chips / own.size), NAMED)])
        for own in stock.classes
    ]
    room = {own.index: len(own.pools) for own in some}
    if chips > sum(len(own.pools) * own.size for own in some):
        return []
    items = [
        item
        for item in stock.items
        if all(item.slices_in(index).total() <= pools for index, pools in room.items())
    ]
    if not items:
        return []
    most = max(item.requests_per_s / item.chips for item in items)
    relaxed = min(stock.relaxed, most * sum(len(own.pools) * own.size for own in some))
    part = replace(stock, items=items, classes=some, relaxed=relaxed)
    found, _ = _model(part, replace(run, limit_s=run.limit_s / 2), floor)
    return [found] if found is not None else []


def _close(candidates: Sequence[Fleet], stock: Stock, run: Effort, floor: float) -> bool:
    """Whether a fleet is as close to its bound as is asked for."""
    enough = floor * (1 + run.accept_gap)
    return any(stock.question.cost_of(fleet) <= enough for fleet in candidates)


def _by_patterns(stock: Stock, run: Effort, floor: float) -> list[Fleet]:
    """The best fleet whose pools are each filled by one of few patterns, if one is found.

    Fillings that the relaxation met, so many pools of each, often are as good as the bound.
    """
    classes, links = stock.classes, stock.question.links if stock.linked else None
    flat = [item for item in stock.items if not item.span]
    met = rate_bound(flat, classes, links, rounds=16)[1]
    if narrow := [item for item in flat if not item.wide]:
        places = {id(item): place for place, item in enumerate(flat)}
        own = [places[id(item)] for item in narrow]
        met += [
            {index: [own[at] for at in filling] for index, filling in fillings.items()}
            for fillings in rate_bound(narrow, classes, links, rounds=16)[1]
        ]
    found, _ = _model(replace(stock, items=flat, met=met, patterned=True), run, floor)
    return [found] if found is not None else []


def _answer(
    items: Sequence[Item],
    classes: Sequence[PoolClass],
    question: Question,
    candidates: list[Fleet],
    floor: float,
    run: Effort,
) -> FleetAnswer:
    """The best of the fleets found, or one found without search."""
    if not any(question.cost_of(fleet) < float("inf") for fleet in candidates):
        # passes may send more than links carry where a model did not tell pools apart
        narrow = [item for item in items if not item.wide]
        if candidates and 0 < len(narrow) < len(items):
            again = solve_fleet(
                narrow, classes, question, clock=run.clock, time_limit_s=run.limit_s / 2,
                seed=run.seed, accept_gap=run.accept_gap,
            ).fleet  # fmt: skip
            candidates = [again] if again is not None else []
    if not any(question.cost_of(fleet) < float("inf") for fleet in candidates):
        quick = quick_fleet(items, classes, question)
        candidates = [quick] if quick is not None else []
    best = min(candidates, key=question.cost_of, default=None)
    return FleetAnswer(None if best is None else needed(best, classes, question), floor)


def needed(fleet: Fleet, classes: Sequence[PoolClass], question: Question) -> Fleet:
    """The fleet without replicas that the rate asked for does not need, the dearest left out first.

    A fleet made of whole fillings of pools may serve many times a small rate.
    """
    if question.rate is None or len(fleet.stands) > _TRIMMED:
        return fleet
    kept = fleet
    for stand in sorted(fleet.stands, key=lambda one: -one[0].chips):
        at = kept.stands.index(stand)
        less = fleet_of((*kept.stands[:at], *kept.stands[at + 1 :]), classes, question.links)
        if question.cost_of(less) < question.cost_of(kept):
            kept = less
    return kept


def links_may_bind(
    items: Sequence[Item], classes: Sequence[PoolClass], links: Links | None
) -> bool:
    """Whether some fleet of the items could hand over or send more than links carry.

    Each chip at most serves what the best item's chips serve; what a domain or unit hands over is at most
    what all its chips could.
    """
    if links is None:
        return False
    if any(item.role == _PREFILL and not item.leaves for item in items):
        return True
    if links.uplinks.doors and any(item.wide for item in items):
        return True
    need = [0.0] * len(links.uplinks.domain)
    units = [0.0] * len(links.uplinks.unit)
    for pool_class in classes:
        own = [item for item in items if item.slices_in(pool_class.index)]
        handed = max(
            (i.requests_per_s / sum(n for _, n in i.holding) for i in own if i.role <= _DECODE),
            default=0.0,
        )
        sent, far = (
            max(
                (max(getattr(i, n), default=0.0) / min(c for _, c in i.parts) for i in own),
                default=0.0,
            )
            for n in ("sent", "sent_far")
        )
        for pool in pool_class.pools:
            need[pool.domain] += (handed * links.request_bytes + sent) * pool_class.size
            unit = int(links.uplinks.unit_of[pool.domain])
            units[unit] += (handed * links.request_bytes + far) * pool_class.size
    room = links.uplinks
    return any(a > b for a, b in zip(need, room.domain, strict=True)) or any(
        a > b for a, b in zip(units, room.unit, strict=True)
    )


def _model(stock: Stock, run: Effort, floor: float) -> tuple[Fleet | None, float]:
    """Best fleet by CP-SAT, aggregated first where that may do, and the bound raised to what it proves."""
    question = stock.question
    wanted = question.rate
    if not stock.items:
        return None, floor
    aggregate = not stock.linked and any(len(c.pools) > TABLED and c.few for c in stock.classes)
    found: Fleet | None = None
    for aggregated in (True, False) if aggregate else (False,):
        share = replace(run, limit_s=run.limit_s / (2 if aggregate else 1))
        model = FleetModel(replace(stock, aggregated=aggregated), share)
        if question.whole and wanted is None:
            model.cap_rate(question.whole_usd_per_hour / floor)
        for _ in range(_REPACKS if aggregated else 1):
            exact: float | None
            try:
                if wanted is not None:
                    found, exact = model.least_cost(wanted)
                elif question.whole:
                    found, most = model.most_rate()
                    exact = None
                    if most is not None:
                        exact = question.whole_usd_per_hour / most if most > 0 else float("inf")
                else:
                    found, exact = model.least_ratio(floor)
            except NotPacked as failure:
                if not failure.proven:
                    break
                model.forbid(failure.counts)
                continue
            if model.complete and exact is not None:
                floor = max(floor, exact)
            break
        if found is not None:
            break
    return found, floor


def quick_fleet(
    items: Sequence[Item], classes: Sequence[PoolClass], question: Question
) -> Fleet | None:
    """A fleet without search: each class fills all its pools by one and the same best pattern.

    What is returned when the time for a model is too short. ``None`` if no pattern serves.
    """
    stands: list[tuple[Item, tuple[Pool, ...]]] = []
    for pool_class in classes:
        own = [p for p, item in enumerate(items) if item.slices_in(pool_class.index)]
        best: Fleet | None = None
        for uses in pool_patterns(items, own, pool_class, [], wide=False):
            filled = [
                (items[place], (pool,))
                for pool in pool_class.pools
                for place, times in sorted(uses.items())
                for _ in range(times)
            ]
            fleet = fleet_of(serving(filled), classes, question.links)
            if best is None or fleet.requests_per_s > best.requests_per_s:
                best = fleet
        stands += best.stands if best is not None else ()
    whole = fleet_of(stands, classes, question.links)
    return whole if question.cost_of(whole) < float("inf") else None
