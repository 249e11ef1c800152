"""Sets of chips that share none, for the replicas of one pool where neighbours matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from solver.clock import Clock
from topology.routing.blocks import ChipBlock
from topology.routing.granularity import Granularity

#: chips that sets are packed on at most: of more, sets of stages are (:mod:`solver.place.stage_sets`)
MOST_CHIPS = 64
#: sets of one number of chips that are chosen from, and seconds for choosing
_MOST, _LIMIT_S = 400, 5.0
#: steps of what a set takes over the least that any takes, for integers
_STEPS = 1000


@dataclass(frozen=True, order=True)
class Need:
    """Chips that a replica wants, and which patterns it runs on all of them."""

    chips: int
    exchanges: bool
    gathers: bool


def tiles(
    of: Granularity, free: Sequence[int], needs: Sequence[Need], *, clock: Clock, seed: int
) -> list[ChipBlock]:
    """A set for each need, no chip twice, so that the sets together are as quick as was found.

    ``free`` holds at least as many positions as are needed. Where the quick sets do not fit beside each
    other, or are too many, the widest need takes the quickest set of what is left, then the next.
    """
    if len(needs) > 1 and len(free) <= MOST_CHIPS:
        found = _packed(of, free, Counter(needs), clock, seed)
        if found is not None:
            return [found[need].pop() for need in needs]
    left = list(free)
    taken: dict[int, ChipBlock] = {}
    for place in sorted(range(len(needs)), key=lambda at: (-needs[at].chips, at)):
        need = needs[place]
        sets = of.blocks(left, need.chips, _MOST)
        taken[place] = min(zip(_excess(sets, need), range(len(sets)), sets, strict=True))[2]
        left = [position for position in left if position not in taken[place].chips]
    return [taken[place] for place in range(len(needs))]


def _excess(sets: Sequence[ChipBlock], need: Need) -> list[int]:
    """What each set takes above the quickest, in steps: latency, and the patterns that are needed."""
    columns = [[one.latency_s for one in sets]]
    if need.exchanges:
        columns.append([one.exchange_s_per_byte for one in sets])
    if need.gathers:
        columns.append([one.gather_s_per_byte for one in sets])
    return [
        sum(
            round(_STEPS * (value / (min(own) or 1.0) - 1))
            for value, own in zip(row, columns, strict=True)
        )
        for row in zip(*columns, strict=True)
    ]


def _packed(
    of: Granularity, free: Sequence[int], needs: Counter[Need], clock: Clock, seed: int
) -> dict[Need, list[ChipBlock]] | None:
    """Sets for all needs by CP-SAT; ``None`` where the sets that are known do not fit in time."""
    model = cp_model.CpModel()
    uses: dict[int, list[cp_model.IntVar]] = {position: [] for position in free}
    chosen: list[tuple[Need, ChipBlock, cp_model.IntVar]] = []
    costs: list[int] = []
    for need, number in sorted(needs.items()):
        sets = of.blocks(free, need.chips, _MOST)
        own = [model.new_bool_var(f"x[{need.chips},{index}]") for index in range(len(sets))]
        model.add(sum(own) == number)
        for one, excess, variable in zip(sets, _excess(sets, need), own, strict=True):
            chosen.append((need, one, variable))
            costs.append(excess)
            for position in one.chips:
                uses[position].append(variable)
    for variables in uses.values():
        model.add_at_most_one(variables)
    model.minimize(cp_model.LinearExpr.weighted_sum([v for _, _, v in chosen], costs))
    solver, status = clock.run(model, seed=seed, limit_s=_LIMIT_S)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    found: dict[Need, list[ChipBlock]] = {need: [] for need in needs}
    for need, one, variable in chosen:
        if solver.value(variable):
            found[need].append(one)
    return found
