"""The best fleet of given items, with a bound: relaxation first, then the CP-SAT model."""

from __future__ import annotations

from collections.abc import Sequence

from solver.clock import Clock
from solver.fleet_bound import cost_per_rate_bound, rate_bound
from solver.fleet_model import SINGLY, TABLED, FleetModel, NotPacked, Run
from solver.fleets import Fleet, FleetAnswer, Question
from solver.items import Item
from solver.pools import PoolClass

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
    aggregate = any(TABLED < len(c.pools) <= SINGLY for c in classes)
    found: Fleet | None = None
    for aggregated in (True, False) if aggregate else (False,):
        run = Run(clock, time_limit_s / (2 if aggregate else 1), seed, accept_gap)
        model = FleetModel(items, classes, met, relaxed, aggregated, run)
        if question.whole and wanted is None:
            model.cap_rate(question.whole_usd_per_hour / floor)
        for _ in range(_REPACKS if aggregated else 1):
            try:
                if wanted is not None:
                    found, exact = model.least_cost(wanted)
                elif question.whole:
                    found, most = model.most_rate()
                    exact = question.whole_usd_per_hour / most if most > 0 else float("inf")
                else:
                    found, exact = model.least_ratio(floor)
            except NotPacked as failure:
                if not failure.proven:
                    break
                model.forbid(failure.counts)
                continue
            if model.complete:
                floor = max(floor, exact)
            break
        if found is not None:
            break
    return FleetAnswer(found, floor)
