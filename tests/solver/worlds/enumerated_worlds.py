"""The least cost at a confidence over every fleet of a tiny dense model on one domain, world by world."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from costmodel.question.instance import Instance
from tests.solver.enumerated_maps import not_worse
from tests.solver.enumeration import ROLES, drafts, hand_over_s, pools, rate_of, takings


def rates(
    instance: Instance, worlds: Sequence[Instance]
) -> dict[tuple[int, str], NDArray[np.float64]]:
    """Requests per second ``[replicas, worlds]`` by chips taken and role, 0 where a world's replica breaks a rule."""
    found: dict[tuple[int, str], list[list[float]]] = defaultdict(list)
    for taken in takings(instance):
        for draft, _ in drafts(instance, taken):
            far = hand_over_s(instance, draft)[0]
            if np.isfinite(far) and rate_of(instance, draft, {}, far)[0] > 0:
                each = [rate_of(world, draft, {}, far)[0] for world in worlds]
                found[sum(taken), draft.role].append(each)
    return {key: np.array(each) for key, each in found.items()}


def least_at(instance: Instance, worlds: Sequence[Instance], kept: int) -> float:
    """Least dollars per hour and request per second that some fleet costs at most in ``kept`` of the worlds."""
    (own,) = pools(instance)
    usd = instance.cluster.chip(own[0]).chip.usd_per_hour
    every = rates(instance, worlds)
    best = np.inf
    for some in combinations(range(len(worlds)), kept):
        states = {0: np.zeros((1, 3 * kept))}
        for (chips, role), each in sorted(every.items()):
            chosen = each[:, some]
            chosen = chosen[(chosen > 0).all(axis=1)]
            gains = np.zeros((len(chosen), 3, kept))
            gains[:, ROLES.index(role)] = chosen  # type: ignore[arg-type]
            flat = gains.reshape(len(chosen), -1)
            for gain in flat[not_worse(-flat)] if len(flat) else flat:
                for before in range(len(own) - chips + 1):
                    if before not in states:
                        continue
                    after = before + chips
                    rows = [states.get(after, np.zeros((0, 3 * kept))), states[before] + gain]
                    joined = np.concatenate(rows)
                    states[after] = joined[not_worse(-joined)]
        for chips, rows in states.items():
            prefill, decode, mixed = np.moveaxis(rows.reshape(-1, 3, kept), 1, 0)
            served = (np.minimum(prefill, decode) + mixed).min(axis=1).max()
            paid = len(own) if instance.scenario.pay == "whole" else chips
            best = min(best, usd * paid / served if served > 0 else np.inf)
    return float(best)
