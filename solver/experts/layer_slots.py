r"""Expert slots shared among the layers: more where they lower the busiest chip's load most.

With ``u_l(s)`` the busiest chip's share of layer ``l`` when the layer has ``s`` slots, the shares out of a
budget of ``B`` slots over all layers are

    minimise sum_l u_l(s_l)   with   sum_l s_l <= B,   s_l among the counts tried,

a knapsack with one choice per layer, solved exactly for every budget at once by dynamic programming
(C. Hu et al., CRAFT, arXiv 2603.28768, shares replicas among layers for the same reason). ``u_l(s)`` is what
the placement search reaches, not a model of it. A layer's seconds may stand in its place: a slot more is also an expert
more whose weights are read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import gcd

import numpy as np

from solver.experts.bounds.closed_form import load_bounds
from solver.experts.place import TOLERANCE, construct
from solver.experts.slots import Floats, Ints, Slots, check_loads

#: spare slots tried where chips of a layer may differ, beside whole rows
SPARE = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
#: sweeps of the descent for one count: what a layer gains shows long before the search is done
_SWEEPS = 40
#: gap to a mean chip at which the search leaves a layer alone
_EVEN = TOLERANCE["good"]
#: sums of shares this near are equal, and fewer slots are then better: half of what the search leaves
_EQUAL = _EVEN / 2


def even_spread(slots: int, num_chips: int) -> tuple[int, ...]:
    """Slots of each chip, as even as they can be, larger ones first."""
    least, more = divmod(slots, num_chips)
    return (least + 1,) * more + (least,) * (num_chips - more)


def slot_choices(num_experts: int, num_chips: int, most: int, *, rows: bool) -> tuple[int, ...]:
    """Numbers of slots to try for a layer, fewest first, at most ``most``.

    ``rows``: every chip has equally many; else any number, of which some are tried. No chip is without
    a slot and none holds an expert twice.
    """
    full = range(num_chips * -(-num_experts // num_chips), most + 1, num_chips)
    least = max(num_experts, num_chips)
    some = set() if rows else {least + spare for spare in SPARE if least + spare <= most}
    limit = num_experts * num_chips
    return tuple(sorted(count for count in some | set(full) if count <= limit))


@dataclass(frozen=True, slots=True)
class Choice:
    """Layers placed with one number of slots, quickly.

    ``layers``: rows of the loads; ``rows [layers, slots]`` experts, larger chips first; ``busiest [layers]``.
    """

    slots_per_chip: tuple[int, ...]
    layers: Ints
    rows: Ints
    busiest: Floats


def place_choices(
    loads: Floats,
    num_chips: int,
    choices: Sequence[int],
    *,
    seed: int = 0,
    deadline: float | None = None,
) -> Iterator[Choice]:
    """Layers with each number of slots, by construction and a short descent.

    A layer that is even with fewer slots is not placed with more. After ``deadline`` (of ``time.monotonic``) no
    further number is tried.
    """
    shares = check_loads(loads)
    todo = np.arange(len(shares))
    for count in choices:
        slots = Slots(even_spread(count, num_chips))
        bound = load_bounds(shares[todo], num_chips, count)
        rng = np.random.default_rng(seed)
        table, peak = construct(shares[todo], slots, bound, "good", rng, deadline, _SWEEPS)
        yield Choice(slots.counts, todo, table[:, slots.mask()], peak)
        todo = todo[peak > (1 + _EVEN) / num_chips]
        if not len(todo) or (deadline is not None and time.monotonic() > deadline):
            return


def busiest_shares(
    loads: Floats,
    num_chips: int,
    choices: Sequence[int],
    *,
    seed: int = 0,
    deadline: float | None = None,
) -> Floats:
    """The busiest chip's share ``[layers, choices]`` of :func:`place_choices`; infinite where not placed."""
    found = np.full((len(loads), len(choices)), np.inf)
    tried = place_choices(loads, num_chips, choices, seed=seed, deadline=deadline)
    for place, choice in enumerate(tried):
        found[choice.layers, place] = choice.busiest
    return found


@dataclass(frozen=True, slots=True)
class SlotShares:
    """The best shares for every budget: :meth:`choose` reads one.

    ``least [budgets]``: smallest sum of the layers' shares with so many units beyond the fewest slots;
    ``pick [layers, budgets]``: which choice the layer then has, ``unit`` slots to a unit.
    """

    choices: Ints
    unit: int
    least: Floats
    pick: Ints

    @classmethod
    def of(cls, busiest: Floats, choices: Sequence[int], most: int) -> SlotShares:
        """From ``busiest [layers, choices]``, for budgets up to ``most`` slots over all layers."""
        counts = np.array(choices, dtype=np.int64)
        layers = len(busiest)
        steps = (counts - counts[0]).tolist()
        unit = gcd(*steps) or 1
        weights = [step // unit for step in steps]
        budget = min(most - layers * int(counts[0]), layers * steps[-1]) // unit
        least = np.zeros(max(budget, 0) + 1)
        pick = np.zeros((layers, len(least)), dtype=np.int64)
        for layer, own in enumerate(busiest):
            best = least + own[0]
            for choice, weight in enumerate(weights[1:], 1):
                if weight >= len(least):
                    break
                tried = least[: len(least) - weight] + own[choice]
                better = tried < best[weight:]
                best[weight:][better] = tried[better]
                pick[layer, weight:][better] = choice
            least = best
        return cls(counts, unit, least, pick)

    def choose(self, budget: int) -> tuple[int, ...]:
        """Slots of each layer for ``budget`` slots over all layers; of equally good shares the smallest."""
        layers = len(self.pick)
        units = (budget - layers * int(self.choices[0])) // self.unit
        if units < 0:
            raise ValueError(f"{budget} slots for {layers} layers of {self.choices[0]} or more")
        place = min(units, len(self.least) - 1)
        good = self.least[: place + 1] <= self.least[place] * (1 + _EQUAL)
        place = int(np.flatnonzero(good)[0])
        found = []
        for layer in range(layers - 1, -1, -1):
            count = int(self.choices[self.pick[layer, place]])
            found.append(count)
            place -= (count - int(self.choices[0])) // self.unit
        return tuple(found[::-1])


def staggered(counts: Sequence[int], num_chips: int) -> list[tuple[int, ...]]:
    """Slots of each chip in each layer: where a layer's do not divide, the next chips in turn have one more.

    Over all layers no chip then has more than one slot more than another.
    """
    starts = [0, *accumulate(count % num_chips for count in counts)]
    return [
        tuple(np.roll(even_spread(count, num_chips), start % num_chips).tolist())
        for count, start in zip(counts, starts, strict=False)
    ]


def on_chips(row: Sequence[int], slots: Sequence[int]) -> tuple[int, ...]:
    """A row placed with the larger chips first, its chips turned to have ``slots``.

    ``slots`` is a turn of the row's own, as :func:`staggered` gives.
    """
    own = sorted(slots, reverse=True)
    ends = [0, *accumulate(own)]
    turn = next(t for t in range(len(own)) if tuple(np.roll(own, t).tolist()) == tuple(slots))
    chips = [row[ends[chip] : ends[chip + 1]] for chip in range(len(own))]
    return tuple(expert for chip in np.roll(np.arange(len(own)), turn) for expert in chips[chip])
