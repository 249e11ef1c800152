"""What shapes serve at most where some requests may miss the TPOT target but are decoded all the same."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf

import numpy as np
from numpy.typing import NDArray

from costmodel.question.instance import Instance
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Slo
from costmodel.replay.targets import Targets
from solver.known import Known
from solver.shapes.shapes import ROLES, ShapeTable
from solver.shapes.stands import neighbours_matter
from solver.traffic.bounds.decoding import Array, DecodePasses, Decoding
from solver.traffic.bounds.under_way import UnderWay, decoding_part

#: seconds for the bound on fleets
_FLEET_S = 12.0
#: part of the best rate on the same chips above which a shape is looked at
_WORTH = 0.9


def rates_with_late(
    known: Known, requests: Requests, exempt: float, targets: Targets | None = None
) -> Array:
    """Requests/s by shape that none exceeds, ``[shapes]``: the upper bounds of ``known`` or less.

    ``known``: the question without the decoding of the share ``exempt`` of the requests. Each replica is given its share
    of all lengths; where ``targets`` are given, mixed ones of the requests as they come, for which their passes with prompts and without
    take turns that are short enough. Layers that read a part of their context, chips whose neighbours matter, and drafts keep the bounds they have.
    """
    upper, spread = known.items.upper.copy(), known.instance.workload.spread
    target = known.instance.slo.tpot
    capped = any(
        attention.window or attention.read_top_k or attention.local_window
        for kind in known.instance.operations.kinds
        for attention in kind.attentions
    )
    capped |= known.instance.speculative is not None
    own = Decoding.of(requests)
    together = (
        () if targets is None or _rides(known.instance) else UnderWay.several(requests, targets)
    )
    if (
        target is None
        or spread is None
        or not (exempt or together)
        or capped
        or not own.steps.any()
    ):
        return upper
    workload = known.instance.workload.model_copy(update={"spread": own.spread(spread)})
    whole = replace(
        known.instance,
        workload=workload,
        scenario=known.instance.scenario.model_copy(update={"slo": Slo(tpot=target)}),
    )
    pricer, shapes = known.pricer.again(whole), known.shapes
    left = (shapes.role != ROLES.index("prefill")) & (upper > 0)
    for one in known.classes:
        if neighbours_matter(known.instance.cluster, one.domain):
            left &= shapes.pool_class != one.index  # a pass may be quicker on another set of chips
    # as the best bounds fall, others are the best
    while (rows := np.flatnonzero(left & _near_best(shapes, upper))).size:
        left[rows] = False
        largest = pricer.bounds(shapes.take(rows), known.workers).per_rank.astype(float)
        for role, index in np.unique(
            np.stack([shapes.role[rows], shapes.pool_class[rows]]), axis=1
        ).T.tolist():
            own_rows = (
                (shapes.role[rows] == role) & (shapes.pool_class[rows] == index) & (largest > 0)
            )
            if own_rows.any():
                passes = DecodePasses(pricer, shapes.take(rows[own_rows]), largest[own_rows])
                most = passes.at_most(own, exempt)
                if together and role == ROLES.index("mixed"):
                    most = np.minimum(most, passes.in_turns(own, partial(decoding_part, together)))
                upper[rows[own_rows]] = np.minimum(upper[rows[own_rows]], most)
    return upper


def _rides(instance: Instance) -> bool:
    """Whether the engine's prompts ride in the passes of decoding sequences, which these bounds do not cover."""
    return instance.engine is not None and instance.engine.habits.prompts == "mixed"


def _near_best(shapes: ShapeTable, rates: Array) -> NDArray[np.bool_]:
    """Shapes that serve nearly as much as the best on the same chips: no other is worth a better bound."""
    chips = np.stack(
        [shapes.role, shapes.pool_class, shapes.slices, shapes.slice_chips, shapes.span]
    )
    groups = np.unique(chips, axis=1, return_inverse=True)[1].ravel()
    best = np.zeros(groups.max(initial=-1) + 1)
    np.maximum.at(best, groups, rates)
    return np.asarray(rates >= _WORTH * best[groups])


def least_usd(known: Known, rates: Array) -> float:
    """Dollars per million output tokens that no layout costs less than, with shapes that serve no more than ``rates``.

    Infinite where none serves.
    """
    items = known.items.best(rates, np.minimum(rates, known.items.leaving))
    if not items:
        return inf
    return known.fleet(items, _FLEET_S).bound * known.to_usd
