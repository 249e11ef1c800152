r"""How much of its time a replica decodes at least, where it computes prompts in turn and both targets are met.

A request of ``s`` steps that meets both targets has all of them between its arrival and ``TTFT + s TPOT`` later. Each is a pass that
takes ``f`` seconds at least beside what grows with its sequences. Summed over the requests that meet them, ``f s`` is no more than the integral of
``N(t)`` over the time of such passes, where ``N(t)`` counts requests whose stretch holds ``t``. It is largest where these passes are in the part of the time with
the largest ``N``: so large a part is needed. Requests of fewer steps may be left out of both sums, as ``TTFT`` matters less to
long answers. A replica has its share of the requests as they come, so that its ``N`` is that of all but for a factor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.question.traffic.requests import Requests
from costmodel.replay.targets import BEYOND_P99, Targets
from costmodel.tolerance import RELATIVE

Array = NDArray[np.float64]

#: shares of the requests, those with the shortest answers, that are left out
_SHORTEST = (0.0, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class UnderWay:
    """Requests that are under way together, of those with some steps at least.

    ``steps``: of those of them that meet the targets in all, at least. ``parts``: of the time, ascending from 0 to 1; ``under_way``:
    the integral of ``N`` over so large a part, at most.
    """

    steps: float
    parts: Array
    under_way: Array

    @classmethod
    def several(cls, requests: Requests, targets: Targets) -> tuple[UnderWay, ...]:
        """Those with each number of steps that is looked at; none without a target for both, or where answers have no step."""
        ttft_s, tpot_s = targets.ttft_p99_s, targets.tpot_p99_s
        steps = np.maximum(requests.output_tokens - 1.0, 0.0)
        if ttft_s is None or tpot_s is None or not steps.any() or not requests.duration_s:
            return ()
        # some may miss the one target, and as many others the other, unless goodput counts both
        late = 2 * may_be(BEYOND_P99, len(steps))
        if targets.goodput is not None:
            late = min(late, may_be(1.0 - targets.goodput, len(steps)))
        least = {max(1.0, float(np.quantile(steps, part))) for part in _SHORTEST}
        lasts_s = ttft_s + steps * tpot_s
        return tuple(
            cls._of(requests, steps, lasts_s, np.flatnonzero(steps >= one), late)
            for one in sorted(least)
        )

    @classmethod
    def _of(
        cls, requests: Requests, steps: Array, lasts_s: Array, rows: NDArray[np.int64], late: int
    ) -> UnderWay:
        """Those of some rows: the same requests come again and again, so that the last ones meet the first."""
        every_s, kept = requests.duration_s, max(0, len(rows) - late)
        begins = np.mod(requests.arrival_s[rows], every_s)
        turns, rest = np.divmod(lasts_s[rows], every_s)
        ends = begins + rest
        over = ends >= every_s
        at = np.concatenate([begins, np.where(over, ends - every_s, ends)])
        change = np.concatenate([np.ones(len(rows)), -np.ones(len(rows))])
        order = np.argsort(at, kind="stable")
        first = float(turns.sum() + over.sum())
        number = first + np.concatenate([[0.0], np.cumsum(change[order])])
        lasting = np.diff(np.concatenate([[0.0], at[order], [every_s]]))
        most = np.argsort(-number, kind="stable")
        parts = np.concatenate([[0.0], np.cumsum(lasting[most])])
        under_way = np.concatenate([[0.0], np.cumsum((lasting * number)[most])])
        shortest = np.partition(steps[rows], kept - 1)[:kept] if kept else np.zeros(1)
        return cls(float(shortest.sum()), parts / parts[-1], under_way)

    def part(self, floor_s: Array) -> Array:
        """Part of the time that passes of ``floor_s`` seconds at least take; 1 and more where all of it is too little."""
        needed = self.steps * floor_s
        most = self.under_way[-1]
        known = np.interp(needed, self.under_way, self.parts)
        return np.asarray(np.where(needed > most, needed / most, known))


def may_be(share: float, number: int) -> int:
    """How many of so many requests such a share is at most."""
    return int(share * number * (1 + RELATIVE) + RELATIVE)


def decoding_part(under_way: tuple[UnderWay, ...], floor_s: Array) -> Array:
    """Part of the time that passes take which last so long at least; 0 where nothing is known."""
    found = np.zeros_like(floor_s)
    for one in under_way:
        found = np.maximum(found, one.part(np.maximum(floor_s, 0.0)))
    return found
