r"""What chips are needed for the prompts to be computed as they arrive, whatever the order and wherever each is computed.

All chips together compute at most so many prompt tokens/s as full passes do whose tokens attend to nothing. As if they were one
machine that may stop a prompt for another at any moment, a first token that is in time has its prompt computed before its deadline.
Deadlines come in the order of arrivals, so that prompts are best computed in that order, and the fewest are late where each time
one would be, that one of the stretch without a pause is left out whose absence lets the stretch end first (Kise, Ibaraki and Mine,
Operations Research 26, 1978).

A fleet of ``p`` chips of prefill, ``d`` of decode and ``m`` of mixed replicas then needs ``T(p + m)`` tokens/s, where mixed ones may do nothing
else for a while, and in the long run ``min(P(p), D(d)) + M(m)`` requests/s.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from costmodel.passes.tokens import Tokens
from costmodel.question.traffic.requests import Requests
from costmodel.replay.targets import Targets
from costmodel.tolerance import RELATIVE
from solver.bounds.packing import best_packing
from solver.fleet.items import Item
from solver.known import Known
from solver.shapes.shapes import ROLES
from solver.shapes.stands import neighbours_matter
from solver.traffic.bounds.under_way import may_be
from solver.traffic.spared import all_chips
from topology.errors import NoFeasibleLayout

Array = NDArray[np.float64]

_PREFILL, _DECODE, _MIXED = (ROLES.index(role) for role in ("prefill", "decode", "mixed"))
#: chips up to which fleets are looked at
_WHOLE = 512
#: steps by which the least speed is found, from below; jobs that are looked at together
_STEPS, _AT_ONCE = 20, 4096
#: halvings by which the highest rate is found
_HALVINGS = 16


def usd_in_time(known: Known, items: Sequence[Item], requests: Requests, targets: Targets) -> float:
    """Dollars per hour of chips that compute prompts as they come and serve the rate of ``items``, at least; 0: not known.

    Raises ``NoFeasibleLayout`` where all chips are too few.
    """
    least, rate = least_tokens_per_s(requests, targets), known.question.rate
    each = tokens_per_s(known)
    if not least or rate is None or not np.isfinite(each).all():
        return 0.0
    every = sorted(price for one in known.classes for price in one.prices for _ in one.pools)
    chips = min(len(every), _WHOLE)
    prompts = known.items.best(each)
    fewest = fewest_chips(prompts, items, least, rate, chips)
    if fewest is None and chips == len(every):
        if _reach(prompts, chips)[-1] >= least:
            raise NoFeasibleLayout(
                f"no layout carries {requests.rate:,.4g} requests/s: to compute their prompts as they come and to decode, all {chips} chips "
                "are too few; fewer requests/s, looser targets or more chips would do"
            )
        raise NoFeasibleLayout(
            f"{100 * (1 - targets.beyond):.6g} % of the first tokens cannot be in time: all {chips} chips together compute the prompts "
            "too slowly as they arrive, whatever the order; fewer requests/s, looser targets or more chips would do"
        )
    return sum(every[: chips if fewest is None else fewest])


def least_tokens_per_s(requests: Requests, targets: Targets) -> float:
    """Prompt tokens/s below which more first tokens are late than may be; 0 without a target for them."""
    most_s = targets.ttft_p99_s
    if most_s is None:
        return 0.0
    late, tokens = may_be(targets.beyond, len(requests)), _new_tokens(requests)
    # one prompt alone, if all others were none: no more than so much is needed, and no less than that of the mean over all time
    high = float(tokens.sum()) / most_s
    low = float(np.sort(tokens)[: len(tokens) - late].sum()) / (requests.duration_s + most_s)
    if too_many_late(requests.arrival_s, tokens / high, most_s, late):
        return high
    if not too_many_late(requests.arrival_s, tokens / low, most_s, late):
        return low
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        if too_many_late(requests.arrival_s, tokens / middle, most_s, late):
            low = middle
        else:
            high = middle
    return low


def most_in_time(known: Known, requests: Requests, targets: Targets) -> float:
    """Requests/s beyond which all chips are too few for such prompts to be in time, up to the rate that they come at; ``inf``: not known."""
    most_s, each = targets.ttft_p99_s, tokens_per_s(known)
    if most_s is None or not np.isfinite(each).all():
        return inf
    chips = all_chips(known.classes)
    items = known.items.best(each)
    computed = (
        float(_reach(items, chips)[-1])
        if chips <= _WHOLE
        else chips * max((item.requests_per_s / item.chips for item in items), default=0.0)
    )
    if not computed:
        return inf
    late, takes_s = may_be(targets.beyond, len(requests)), _new_tokens(requests) / computed

    def too_many(part: float) -> bool:
        return too_many_late(requests.arrival_s / part, takes_s, most_s, late)

    if not too_many(1.0):
        return inf
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if too_many(middle) else (middle, high)
    return requests.rate * high


def _new_tokens(requests: Requests) -> Array:
    return np.asarray(requests.input_tokens - requests.cached_tokens, dtype=float)


def too_many_late(arrival_s: Array, takes_s: Array, most_s: float, late: int) -> bool:
    """Whether one machine, whatever its order, ends more than ``late`` of the jobs later than ``most_s`` after they come."""
    deadline_s = (arrival_s + most_s) * (1 + RELATIVE)
    kept = np.ones(len(arrival_s), dtype=bool)
    # the first job of the stretch without a pause, and when those so far end
    first, now, at = 0, 0.0, 0
    while at < len(arrival_s):
        some = slice(at, at + _AT_ONCE)
        begins = _begins(arrival_s[some], takes_s[some], now)
        ends = begins + takes_s[some]
        late_ones = np.flatnonzero(ends > deadline_s[some])
        number = int(late_ones[0]) + 1 if len(late_ones) else len(ends)
        pauses = np.flatnonzero(begins[:number] <= arrival_s[some][:number])
        first = at + int(pauses[-1]) if len(pauses) else first
        at, now = at + number, float(ends[number - 1])
        if len(late_ones):
            if not late:
                return True
            late -= 1
            stretch = first + np.flatnonzero(kept[first:at])
            gone, sooner = _left_out(arrival_s[stretch], takes_s[stretch])
            kept[stretch[gone]] = False
            now -= sooner
    return False


def _begins(arrival_s: Array, takes_s: Array, now: float) -> Array:
    """When each of some jobs begins, one after another from ``now`` on and none before it comes."""
    before = np.cumsum(takes_s) - takes_s
    return np.asarray(before + np.maximum(now, np.maximum.accumulate(arrival_s - before)))


def _left_out(arrival_s: Array, takes_s: Array) -> tuple[int, float]:
    """That job without which the others end soonest, and how much sooner.

    Those after it begin earlier by what it takes, but none before it comes.
    """
    waits = _begins(arrival_s, takes_s, 0.0) - arrival_s
    least = np.minimum.accumulate(np.append(waits[1:], np.inf)[::-1])[::-1]
    gains = np.minimum(takes_s, least)
    gone = int(gains.argmax())
    return gone, float(gains[gone])


def tokens_per_s(known: Known) -> Array:
    """Prompt tokens/s of each shape at most, ``[shapes]``: of full passes whose tokens attend to nothing; 0 where none is computed.

    Infinite where neighbours matter, since a pass may be quicker on another set of chips.
    """
    shapes, found = known.shapes, np.zeros(len(known.shapes))
    computes = (shapes.role != _DECODE) & (known.items.upper > 0)
    chunk = float(known.instance.limits.prefill_chunk_tokens)
    kinds = np.unique(np.stack([shapes.role, shapes.pool_class])[:, computes], axis=1)
    for role, index in kinds.T.tolist():
        rows = np.flatnonzero(computes & (shapes.role == role) & (shapes.pool_class == index))
        if neighbours_matter(known.instance.cluster, known.classes[index].domain):
            found[rows] = inf
            continue
        block = known.pricer.block(shapes.take(rows), role, known.classes[index])
        full = Tokens(prefill=np.full(len(rows), chunk))
        took_s = block.pipeline(full, exact_stages=False).max_s
        found[rows] = shapes.attention_dp[rows] * chunk / took_s
    return found


def fewest_chips(
    prompts: Sequence[Item], items: Sequence[Item], tokens_per_s: float, rate: float, chips: int
) -> int | None:
    """Chips that compute ``tokens_per_s`` and serve ``rate`` requests/s at least; ``None``: more than ``chips``.

    ``prompts``: items with prompt tokens/s as their rates. Chips are as good wherever they are.
    """
    computed = _reach(prompts, chips)
    served = [
        _reach([item for item in items if item.role == role], chips) for role in range(len(ROLES))
    ]

    def enough(number: int) -> bool:
        # chips that compute prompts, among them mixed ones; the others decode
        least = int(np.searchsorted(computed[: number + 1], tokens_per_s * (1 - RELATIVE)))
        for computing in range(least, number + 1):
            pooled = np.minimum(
                served[_PREFILL][: computing + 1], served[_DECODE][number - computing]
            )
            if (pooled + served[_MIXED][computing::-1]).max() >= rate * (1 - RELATIVE):
                return True
        return False

    low, high = 0, chips
    if not enough(chips):
        return None
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _reach(items: Sequence[Item], chips: int) -> Array:
    rates = np.array([item.requests_per_s for item in items])
    sizes = np.array([item.chips for item in items], dtype=np.int64)
    return best_packing(rates, sizes, chips).best
