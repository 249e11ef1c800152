"""The best fleet of given items, with a bound: relaxation first, then the CP-SAT model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from solver.bounds.apart import cost_per_rate_bound, rate_bound
from solver.clock import Clock
from solver.fleet.asked import Fleet, FleetAnswer, Question, fleet_of
from solver.fleet.items import Item
from solver.fleet.model import TABLED, FleetModel, Run
from solver.fleet.patterns import pool_patterns
from solver.fleet.reading import NotPacked
from solver.shapes.pools import Pool, PoolClass

#: answers of the aggregated model that may fail to pack before it is given up
_REPACKS = 60


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
    relaxed, met = rate_bound(items, classes)
    wanted = question.rate
    if relaxed <= 0 or (wanted is not None and relaxed < wanted * (1 - 1e-9)):
        return FleetAnswer(None, float("inf"))
    if question.whole and wanted is None:
        floor = question.whole_usd_per_hour / relaxed
    else:
        floor = cost_per_rate_bound(items, classes)
    ask = _Ask(items, classes, question, relaxed, met)
    run = Run(clock, time_limit_s, seed, accept_gap)
    # spans make the model much harder: the best fleet without them is found first, so that there is one
    plain = [place for place, item in enumerate(items) if not item.span]
    first: Fleet | None = None
    if 0 < len(plain) < len(items):
        first = solve_fleet(
            [items[place] for place in plain], classes, question, clock=clock,
            time_limit_s=time_limit_s / 2, seed=seed, accept_gap=accept_gap,
        ).fleet  # fmt: skip
    found, floor = _model(ask, run, floor)
    candidates = [fleet for fleet in (found, first) if fleet is not None]
    if not candidates:
        quick = quick_fleet(items, classes, question)
        candidates = [quick] if quick is not None else []
    best = min(
        candidates,
        key=lambda fleet: question.cost_per_request(fleet.requests_per_s, fleet.usd_per_hour),
        default=None,
    )
    return FleetAnswer(best, floor)


@dataclass(frozen=True)
class _Ask:
    """What a fleet model is built from; ``relaxed`` and ``met`` as :func:`rate_bound` finds them."""

    items: Sequence[Item]
    classes: Sequence[PoolClass]
    question: Question
    relaxed: float
    met: list[dict[int, list[int]]]


def _model(ask: _Ask, run: Run, floor: float) -> tuple[Fleet | None, float]:
    """Best fleet by CP-SAT, aggregated first where that may do, and the bound raised to what it proves."""
    question = ask.question
    wanted = question.rate
    aggregate = any(len(c.pools) > TABLED and c.few for c in ask.classes)
    found: Fleet | None = None
    for aggregated in (True, False) if aggregate else (False,):
        share = replace(run, limit_s=run.limit_s / (2 if aggregate else 1))
        model = FleetModel(ask.items, ask.classes, ask.met, ask.relaxed, aggregated, share)
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
        for uses in pool_patterns(items, own, pool_class, []):
            filled = [
                (items[place], (pool,))
                for pool in pool_class.pools
                for place, times in sorted(uses.items())
                for _ in range(times)
            ]
            fleet = fleet_of(filled, classes)
            if best is None or fleet.requests_per_s > best.requests_per_s:
                best = fleet
        stands += best.stands if best is not None else ()
    whole = fleet_of(stands, classes)
    cost = question.cost_per_request(whole.requests_per_s, whole.usd_per_hour)
    return whole if cost < float("inf") else None
