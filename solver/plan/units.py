"""What one or a few whole units run for a model: layouts found by searches, and what no layout of a unit exceeds.

Where a model has traffic, a layout counts for the rate at which its replays meet the percentiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from costmodel.plan.question import PlanModel, PlanUnits
from costmodel.question.instance import resolve_instance
from solver.clock import Clock
from solver.plan.bounds.few import most_of_few
from solver.plan.bounds.most import asked_of, most_of_a_unit
from solver.plan.for_traffic import best_for_traffic
from solver.plan.groups import Start, UnitLayout, on_units, start_s
from solver.search import search
from topology import load_cluster
from topology.errors import NoFeasibleLayout

#: chips of a group that is searched, at most; a larger group has to carry so much more per unit
_GROUP_CHIPS, MORE = 144, 1.02


@dataclass(frozen=True)
class Offer:
    """One model on one kind: layouts to choose from, requests/s that no layout exceeds per unit (infinite: not known), and why there is none.

    ``covers``: what that bound holds for. ``most_of_few``: requests/s that none, one, two ... units carry at most, as
    far as that is known; ``left_of_few``: what is left of them after the worst loss of one.
    """

    layouts: tuple[UnitLayout, ...]
    most_requests_per_s: float
    covers: tuple[str, ...]
    reason: str = ""
    most_of_few: tuple[float, ...] = (0.0,)
    left_of_few: tuple[float, ...] = (0.0,)

    @property
    def why(self) -> str:
        """Why there is no layout, in words."""
        return self.reason or "no replay meets the percentiles"

    def having(self, more: Sequence[UnitLayout]) -> Offer:
        """The same with more layouts; what none exceeds is no less than what these carry, which bounds may not look at."""
        found, number = (*self.layouts, *more), len(self.most_of_few)
        most = max([self.most_requests_per_s, *(own.requests_per_s / own.group for own in more)])
        each = _side_by_side(found, number)
        few = tuple(map(max, self.most_of_few, each))
        left = tuple(map(max, self.left_of_few, _left_side_by_side(found, number)))
        # where some carry more than is said of as many units, so may others that outlast a loss
        unseen = [
            own if own > said else 0.0 for own, said in zip(each, self.most_of_few, strict=True)
        ]
        left = tuple(map(max, left, (0.0, *unseen)))
        return replace(
            self, layouts=found, most_requests_per_s=most, most_of_few=few, left_of_few=left
        )


def offer(
    model: PlanModel,
    units: PlanUnits,
    off: int,
    start: Start,
    *,
    clock: Clock,
    gap: float,
    seed: int,
) -> Offer:
    """Layouts of a model on one, two, four units of a kind, and the bound per unit."""
    try:
        most, covers = most_of_a_unit(model, units, off, clock, gap, seed)
    except NoFeasibleLayout as error:
        # where none was found though a bound allows one, what units carry is not known
        return Offer((), 0.0 if error.proven else inf, (), str(error))
    found: list[UnitLayout] = []
    group, reason = 1, ""
    size = len(load_cluster(units.cluster).chips)
    while group <= units.count and (group == 1 or group * size <= _GROUP_CHIPS or not found):
        try:
            likely = found[-1].instance.limits.prefill_chunk_tokens if found else 0
            one = layout_on(
                model, units, group, off, start, clock=clock, gap=gap, seed=seed, likely=likely
            )
        except NoFeasibleLayout as error:
            one, reason = None, str(error)
        best = max((own.requests_per_s / own.group for own in found), default=0.0)
        if one is not None and one.requests_per_s / group > best * MORE:
            found.append(one)
            if most <= one.requests_per_s / group * MORE:
                break  # no larger group carries so much more
        elif found:
            break
        group *= 2
    few, left = most_of_few(model, units, off, clock, seed)
    return Offer((), most, covers, "" if found else reason, few, left).having(found)


def _side_by_side(found: Sequence[UnitLayout], number: int) -> list[float]:
    """Requests/s of none, one, two ... so many units (exclusive) with such groups side by side, at most."""
    table = [0.0] * number
    for units in range(1, number):
        rates = [
            table[units - one.group] + one.requests_per_s for one in found if one.group <= units
        ]
        table[units] = max([table[units - 1], *rates])
    return table


def _left_side_by_side(found: Sequence[UnitLayout], number: int) -> list[float]:
    """What is left of these after the worst loss of a unit, at most: all but the group that loses most."""
    table = [0.0] * number
    for one in found:
        loses = one.requests_per_s - one.left_requests_per_s
        others = [own for own in found if own.requests_per_s - own.left_requests_per_s <= loses]
        beside = _side_by_side(others, number)
        for units in range(one.group, number):
            left = one.left_requests_per_s + beside[units - one.group]
            table[units] = max(table[units], left)
    return table


def layout_on(
    model: PlanModel,
    units: PlanUnits,
    group: int,
    off: int,
    start: Start,
    *,
    clock: Clock,
    gap: float,
    seed: int,
    taken: tuple[str, ...] = (),
    likely: int = 0,
) -> UnitLayout | None:
    """The layout that carries most on so many units, of which others have the chips ``taken``; ``None`` where no replay meets the percentiles.

    ``likely``: with traffic, tokens of a pass that are tried first.

    Raises what searches raise.
    """
    cluster, failed = on_units(units.cluster, group, off)
    scenario = model.scenario(cluster, failed).model_copy(update={"taken": taken})
    if model.traffic is not None:
        asked = asked_of(model, seed)
        best = best_for_traffic(scenario, asked, clock=clock, gap=gap, seed=seed, likely=likely)
        if best is None:
            return None
        longest = float(asked.requests.output_tokens.max()) * (best.evaluation.tpot_s or 0.0)
        return UnitLayout(
            best.instance, best.layout, group, best.steady_requests_per_s, best.requests_per_s,
            start_s(best.instance, best.evaluation, best.layout, start), longest,
        )  # fmt: skip
    instance = resolve_instance(scenario)
    # what no layout exceeds is known: :func:`most_of_a_unit`
    found = search(instance, clock=clock, gap=gap, seed=seed, brief=True)
    instance = found.instance or instance
    served = found.evaluation.requests_per_s or 0.0
    longest = instance.workload.output_tokens * (found.evaluation.tpot_s or 0.0)
    return UnitLayout(
        instance, found.layout, group, served, served,
        start_s(instance, found.evaluation, found.layout, start), longest,
    )  # fmt: skip
