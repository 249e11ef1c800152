"""A plan beside what people do without one: the best constant fleet, and an autoscaler with thresholds tuned on that day.

``python -m benchmarks.plan.day [PLAN] [--share 0.4] [--losses] [--traffic NAME]``. ``--share`` scales each model's rates so that its
busiest hour alone needs that share of all chips, a loss survived; where no plan meets that, what units shared by the models in any
parts could carry is said. ``--losses`` replays every hour after the loss of each unit, and plans again where targets are missed;
``--traffic`` gives all models that traffic. What is beside the plan is told in :mod:`benchmarks.plan.beside`.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from itertools import product
from math import inf

from ortools.linear_solver import pywraplp

from benchmarks.plan.beside import Beside, autoscaled, constant
from costmodel.plan.hours import Hours, Kind
from costmodel.plan.question import PlanQuestion, load_plan, rates_of
from solver.clock import Clock
from solver.plan.confirm import confirm
from solver.plan.day import DayPlan, plan_offers
from solver.plan.hours import plan_hours
from solver.plan.offers import Offers, columns_of, fits_somewhere, offers_for
from topology import load_cluster
from topology.errors import NoFeasibleLayout, RackfitError

#: halvings between the rates that a share of the chips carries and those that it does not
_HALVINGS = 24
#: searches at a time
_JOBS = 2


def compare(found: DayPlan) -> list[Beside]:
    """The plan and the two beside it."""
    said = f"gap {found.gap:.2%} over any layouts, {found.planned.gap:.2%} over its own"
    plan = Beside("plan", found.planned.judged.usd, said)
    return [plan, constant(found.hours), autoscaled(found.hours)]


def scaled(asked: PlanQuestion, offers: Offers, share: float) -> PlanQuestion:
    """The question with rates whose busiest hour alone needs that share of all chips, a loss survived."""
    fits_somewhere(asked, offers)
    models = []
    for m, (model, own) in enumerate(zip(asked.models, rates_of(asked), strict=True)):
        times = alone_at_most(asked, offers, m, share) / max(most for _, most in own)
        rates = tuple(times * most for _, most in own)
        models.append(model.model_copy(update={"rates": None, "requests_per_s": rates}))
    return asked.model_copy(update={"models": tuple(models)})


def alone_at_most(asked: PlanQuestion, offers: Offers, m: int, share: float) -> float:
    """The highest rate of a model that so large a share of all chips carries after any loss, requests/s.

    Plans of an hour that pay a chip as one dollar say how many chips a rate needs.
    """
    chips = [len(load_cluster(units.cluster).chips) for units in asked.units]
    most = share * sum(own * units.count for own, units in zip(chips, asked.units, strict=True))
    columns = tuple(
        replace(one, model=0, start_s=0.0, drain_s=0.0, least_hours=1)
        for one in columns_of(asked, offers, len(rates_of(asked)[0]))[0]
        if one.model == m
    )
    kinds = tuple(
        Kind(units.called, units.count, (0, 0), own, (float(own),))
        for own, units in zip(chips, asked.units, strict=True)
    )
    low, high = 0.0, sum(one.requests_per_s[-1] for one in columns)
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        hour = Hours((asked.models[m].called,), ((rate,),), kinds, columns, spare=asked.spare)
        try:
            needed = plan_hours(hour, clock=Clock()).judged.usd
        except NoFeasibleLayout:
            needed = inf
        low, high = (rate, high) if needed <= most else (low, rate)
    if not low:
        raise NoFeasibleLayout(
            f"{share:.0%} of the chips carry nothing of {asked.models[m].called} after a loss"
        )
    return low


def shared_at_most(asked: PlanQuestion, carried: list[list[float]]) -> float:
    """Times the demand of the busiest hour that units carry after a loss, where every unit may serve all models in any shares.

    ``carried[model][kind]`` requests/s of a unit. Units of a kind have equal shares, which is no loss: the mean over all
    orders of the units meets what each order does.
    """
    demand = [[most for _, most in own] for own in rates_of(asked)]
    return min(
        _shared(asked, carried, [own[hour] for own in demand]) for hour in range(len(demand[0]))
    )


def _shared(asked: PlanQuestion, carried: list[list[float]], demand: list[float]) -> float:
    solver = pywraplp.Solver.CreateSolver("GLOP")
    share = [[solver.NumVar(0.0, 1.0, "") for _ in asked.units] for _ in asked.models]
    times = solver.NumVar(0.0, solver.infinity(), "")
    for k in range(len(asked.units)):
        solver.Add(sum(own[k] for own in share) <= 1.0)
    lost = range(len(asked.units)) if asked.spare else [-1]
    for gone, m in product(lost, range(len(asked.models))):
        left = [
            max(0, units.count - (asked.spare if k == gone else 0)) * carried[m][k] * share[m][k]
            for k, units in enumerate(asked.units)
        ]
        solver.Add(sum(left) >= demand[m] * times)
    solver.Maximize(times)
    solver.Solve()
    return float(times.solution_value())


def per_unit(asked: PlanQuestion, offers: Offers, *, bounds: bool) -> list[list[float]]:
    """Requests/s of a unit by model and kind: of the best layout found, or what none exceeds."""
    return [
        [
            offers[m, k].most_requests_per_s
            if bounds
            else max((own.requests_per_s / own.group for own in offers[m, k].layouts), default=0.0)
            for k in range(len(asked.units))
        ]
        for m in range(len(asked.models))
    ]


def _confirmed(found: DayPlan) -> DayPlan:
    """The plan that replays after every loss confirm, as far as one is found; says what they met."""
    began = time.process_time()
    confirmed = confirm(found, clock=Clock(), on_progress=print)
    number = len(confirmed.replays)
    print(
        f"each unit lost at each hour, what is left replayed: {number - confirmed.missed} of {number} meet their targets; "
        f"{time.process_time() - began:.0f} s of CPU {confirmed.reason}"
    )
    for one in confirmed.replays:
        if not one.meets:
            print(f"  missed: {one}")
    for cut in confirmed.cuts:
        print(f"  {cut}")
    return confirmed.plan


def main() -> None:
    """Print the three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", nargs="?", default="two-models-day")
    parser.add_argument("--share", type=float)
    parser.add_argument("--losses", action="store_true")
    parser.add_argument("--traffic")
    words = parser.parse_args()
    asked, clock = load_plan(words.plan), Clock()
    if words.traffic is not None:
        models = tuple(one.model_copy(update={"traffic": words.traffic}) for one in asked.models)
        asked = asked.model_copy(update={"models": models})
    offers = offers_for(
        asked,
        clock=clock,
        jobs=_JOBS,
        on_progress=lambda said: print(f"{clock.elapsed_s:.0f} s: {said}"),
    )
    for (m, k), one in offers.items():
        rates = [f"{own.requests_per_s:,.4g} on {own.group}" for own in one.layouts]
        print(
            asked.models[m].called,
            asked.units[k].cluster,
            rates,
            f"bound {one.most_requests_per_s:,.4g}",
            one.reason,
        )
    if words.share is not None:
        asked = scaled(asked, offers, words.share)
        for model, own in zip(asked.models, rates_of(asked), strict=True):
            print(
                f"{model.called}: {max(most for _, most in own):,.4g} requests/s in its busiest hour"
            )
    try:
        found = plan_offers(asked, offers, clock=clock)
    except RackfitError as error:
        print(f"{clock.elapsed_s:.1f} s: {error}")
        for bounds, what in ((False, "as much as its layouts"), (True, "as much as none exceeds")):
            times = shared_at_most(asked, per_unit(asked, offers, bounds=bounds))
            print(
                f"with units shared by the models in any parts, each carrying {what}: {times:.4f} times the busiest "
                f"hour after a loss{'' if times >= 1 else ': no plan, whatever units share'}"
            )
        return
    if words.losses:
        found = _confirmed(found)
    per_day = 24.0 / found.hours.hours
    for way in compare(found):
        usd = "-" if way.usd is None else f"${way.usd * per_day:,.2f} per day"
        more = "" if way.usd is None else f", {way.usd / found.planned.judged.usd - 1:+.1%}"
        print(f"{way.name:<15} {usd}{more}  {way.said}")
    print(f"{found.wall_s:.1f} s")


if __name__ == "__main__":
    main()
