"""Every fleet of enumerated replicas, and the least cost of any."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import Role
from costmodel.question.instance import Instance
from costmodel.tolerance import exceeds
from tests.solver.enumerated_maps import not_worse
from tests.solver.enumeration import ROLES, Best, Taken, kind_of_pool, pools


def fleets(instance: Instance, replicas: list[Best]) -> list[tuple[Taken, NDArray[np.float64]]]:
    """Chips taken and rates ``(prefill, decode, mixed)`` of every fleet that no other on them beats."""
    own = pools(instance)
    sizes = [len(chips) for chips in own]
    kinds = [kind_of_pool(instance, chips) for chips in own]
    options: dict[tuple[Taken, Role], float] = {}
    for best in replicas:
        for taken in _swapped(best.taken, kinds):
            key = (taken, best.role)
            options[key] = max(options.get(key, 0.0), best.rate)
    states: dict[Taken, NDArray[np.float64]] = {(0,) * len(sizes): np.zeros((1, 3))}
    # every fleet is met by adding its replicas in this one order
    for (taken, role), rate in sorted(options.items()):
        gain = np.array([rate * (role == name) for name in ROLES])
        for state in sorted(product(*(range(size + 1) for size in sizes))):
            if state not in states:
                continue
            after = tuple(a + b for a, b in zip(state, taken, strict=True))
            if all(a <= size for a, size in zip(after, sizes, strict=True)):
                rows = np.concatenate([states.get(after, np.zeros((0, 3))), states[state] + gain])
                states[after] = rows[not_worse(-rows)]
    return list(states.items())


def _swapped(taken: Taken, kinds: list[tuple[str, int, object]]) -> set[Taken]:
    """The same numbers of chips in other pools of the same kinds."""
    return {
        tuple(taken[p] for p in order)
        for order in permutations(range(len(taken)))
        if all(kinds[p] == kinds[q] for p, q in enumerate(order))
    }


def least_cost(instance: Instance, replicas: list[Best]) -> float | None:
    """Least dollars per hour and request per second of any fleet, ``None`` if none serves."""
    own = pools(instance)
    price = [instance.cluster.chip(chips[0]).chip.usd_per_hour for chips in own]
    whole = sum(placed.chip.usd_per_hour for placed in instance.cluster.usable)
    wanted = instance.scenario.rate
    found = np.inf
    for taken, rates in fleets(instance, replicas):
        served = float((np.minimum(rates[:, 0], rates[:, 1]) + rates[:, 2]).max())
        used = sum(usd * count for usd, count in zip(price, taken, strict=True))
        if wanted is not None:
            if not exceeds(wanted, served):
                found = min(found, used / wanted)
        elif served > 0:
            found = min(found, (whole if instance.scenario.pay == "whole" else used) / served)
    return None if np.isinf(found) else float(found)


def with_rate(instance: Instance, rate: float) -> Instance:
    """The same instance asked for so many requests per second."""
    return replace(instance, scenario=instance.scenario.model_copy(update={"rate": rate}))
