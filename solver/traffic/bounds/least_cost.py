"""What every layout for some traffic costs at least, in the evaluation's own terms, and what that holds for.

At the peak rate and the rounded mean answer. Of what is lost: what is left after the loss of any of ``n`` units must
cost as much as any layout, and the dearest unit is at least an ``n``-th of all; and each role carries the rate without
its largest replica (:mod:`solver.traffic.spared`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.tolerance import RELATIVE
from solver.answer import SearchResult
from solver.bounds.apart import whole_chips
from solver.clock import Clock
from solver.known import Known
from solver.search import kept_groundwork
from solver.traffic.asked import COVERS, REUSED, WHOLE, Asked, Questions
from solver.traffic.bounds.arrivals import usd_in_time
from solver.traffic.bounds.late import least_usd, rates_with_late
from solver.traffic.losses import units
from solver.traffic.spared import all_chips, least_chips
from topology.errors import NoFeasibleLayout, either, option

_LOSSES = (
    "losses: what is left without any one unit costs as much as any layout, and each role serves the rate without the "
    "largest of its replicas, as some unit takes it"
)

_ARRIVALS = (
    "arrivals: prompts come when they come, and so many first tokens are in time; all chips compute them together, in "
    "full passes and in the order in which the fewest are late"
)

_DRAFTS = "drafts: a pass gives the tokens that it gives on average, as at most half of the requests get more"


@dataclass(frozen=True)
class LeastCost:
    """Dollars per million output tokens that no layout costs less than, and what that covers."""

    usd_per_m_output_tokens: float
    covers: tuple[str, ...]


def least_cost(
    own: Questions, asked: Asked, every: SearchResult, clock: Clock, seed: int, workers: int
) -> LeastCost:
    """The bound for traffic; ``every``: the answer to what every order of requests has to carry.

    Raises ``NoFeasibleLayout`` where no layout of all chips carries the rate after every loss, or none is left.
    """
    share = own.share
    ground = kept_groundwork(own.every)
    known = Known(own.every, clock, 0.0, seed, None, workers=workers, ground=ground)
    arriving = asked.arriving
    rates = rates_with_late(known, arriving, own.exempt, asked.targets)
    bound = every.certificate.bound_usd_per_m_output_tokens
    if (rates < known.items.upper).any():
        bound = max(bound, least_usd(known, rates))
    bound *= share
    dollars = asked.peak_rate / known.to_usd
    items = known.items.best(rates, np.minimum(rates, known.items.leaving))
    in_time = usd_in_time(known, items, arriving, asked.targets) / dollars
    covers = (*every.certificate.covers, *COVERS, *(WHOLE if asked.prefixes == "off" else REUSED))
    if own.every.speculative is not None:
        covers += (_DRAFTS,)
    if share < 1.0:
        covers += (
            f"windows: the bound is lowered by {1.0 - share:.1%}, as layers that read a part of the "
            "context read and keep less of unlike lengths than of their mean",
        )
    if asked.spare:
        number = len(units(own.spread, asked.spare))
        if number < 2:
            raise NoFeasibleLayout(
                "nothing is left after the loss: all chips are one unit; "
                + either(
                    "more nodes or racks would do",
                    option("spare") and f"a smaller {option('spare')}",
                )
            )
        bound *= number / (number - 1.0)
        chips = all_chips(known.classes)
        fewest = least_chips(items, asked.peak_rate * share, chips)
        if fewest > chips:
            raise NoFeasibleLayout(
                f"no layout carries {asked.peak_rate:,.4g} requests/s after the loss of any one of its replicas: "
                f"that takes more than the {chips} chips; fewer requests/s, looser targets or more chips would do"
            )
        usd = fewest * min(min(one.prices) for one in known.classes)
        bound = max(bound, usd / asked.peak_rate * known.to_usd)
        covers += (_LOSSES,)
    if in_time > bound * (1 + RELATIVE):
        bound = in_time
        covers += (_ARRIVALS,)
    bound = whole_chips(bound * dollars, known.classes) / dollars
    return LeastCost(bound, covers)
