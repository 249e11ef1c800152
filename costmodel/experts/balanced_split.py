"""The split of tokens over fixed replicas that makes the busiest chip's load smallest (exact).

A transport problem: expert ``e`` may send its load to the chips that hold it. A capacity ``T``
suffices iff a flow saturates; if not, the minimum cut names chips whose own load forces a higher
``T``, and the search repeats from there. It ends at ``max over chip sets C`` of the load that can
only go to ``C``, divided by ``|C|``.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Loads below this share of a layer are rounding.
EPSILON = 1e-12


def split_loads(row: Ints, share: Floats, chip: Ints) -> Floats:
    """Load of each chip under the best split, for one layer's ``row [slots]`` of experts."""
    num_chips = int(chip[-1]) + 1
    homes: list[list[int]] = [[] for _ in range(len(share))]
    for slot, expert in enumerate(row.tolist()):
        homes[expert].append(int(chip[slot]))
    fixed = np.zeros(num_chips)
    free: list[tuple[float, list[int]]] = []
    for expert, chips in enumerate(homes):
        chips = sorted(set(chips))
        if len(chips) == 1:
            fixed[chips[0]] += share[expert]
        elif share[expert] > 0:
            free.append((float(share[expert]), chips))
    limit = max(float(fixed.max()), float(share.sum()) / num_chips)
    while True:
        sent, closed = _fill(free, limit - fixed)
        if not closed:
            break
        inside = np.zeros(num_chips, dtype=bool)
        inside[list(closed)] = True
        load = fixed[inside].sum() + sum(size for size, chips in free if inside[chips].all())
        raised = float(load / inside.sum())
        if raised <= limit * (1 + EPSILON):
            break
        limit = raised
    return fixed + sent


def _fill(free: list[tuple[float, list[int]]], room: Floats) -> tuple[Floats, set[int]]:
    """Send every expert's load within ``room``: load sent per chip, and the full chips of a cut.

    Augments along shortest paths expert -> chip -> expert -> ... -> chip with room. What finds no
    room is put on its first chip, and the chips that it reaches are returned.
    """
    sent = np.zeros(len(room))
    flow = [dict.fromkeys(chips, 0.0) for _, chips in free]
    holders: dict[int, list[int]] = {}
    for expert, (_, chips) in enumerate(free):
        for chip in chips:
            holders.setdefault(chip, []).append(expert)
    stuck: set[int] = set()
    for expert, (size, chips) in enumerate(free):
        left = size
        while left > EPSILON:
            came: dict[int, tuple[int, int]] = {}
            queue = deque((chip, expert, -1) for chip in chips)
            end = -1
            while queue:
                chip, via, before = queue.popleft()
                if chip in came:
                    continue
                came[chip] = (via, before)
                if room[chip] - sent[chip] > EPSILON:
                    end = chip
                    break
                for other in holders[chip]:
                    if flow[other][chip] > EPSILON:
                        queue.extend((c, other, chip) for c in flow[other] if c not in came)
            if end < 0:
                stuck |= set(came)
                flow[expert][chips[0]] += left
                sent[chips[0]] += left
                break
            amount, chip = min(left, float(room[end] - sent[end])), end
            while came[chip][1] >= 0:
                via, chip = came[chip]
                amount = min(amount, flow[via][chip])
            chip = end
            while chip >= 0:
                via, before = came[chip]
                flow[via][chip] += amount
                if before >= 0:
                    flow[via][before] -= amount
                chip = before
            sent[end] += amount
            left -= amount
    return sent, stuck
