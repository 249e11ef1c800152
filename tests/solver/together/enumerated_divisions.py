"""Every division of a tiny cluster's chips among models, from every fleet of every model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from costmodel.question.instance import Instance
from costmodel.together.question import Models, Served, Together
from costmodel.tolerance import exceeds
from tests.solver.enumerated_fleets import fleets
from tests.solver.enumeration import Best, Taken, pools

#: a model's fleets: chips taken in each pool, and the most that any fleet on them serves
Served_on = list[tuple[Taken, float]]


def on_one_cluster(first: Instance, *others: Instance) -> tuple[Instance, ...]:
    """The questions of all instances, asked of the first one's cluster."""
    moved = [
        replace(
            one,
            cluster=first.cluster,
            profile=first.profile,
            scenario=one.scenario.model_copy(
                update={"cluster": first.scenario.cluster, "limits": first.scenario.limits}
            ),
        )
        for one in others
    ]
    return first, *moved


def models_of(instances: Sequence[Instance], rates: Sequence[float], pay: str) -> Models:
    """The question of several models at these rates."""
    names = tuple(f"m{at}" for at in range(len(instances)))
    served = [
        Served(name=name, model=one.scenario.model, workload=one.workload, slo=one.slo, rate=rate)
        for name, one, rate in zip(names, instances, rates, strict=True)
    ]
    asked = Together.model_validate(
        {"cluster": instances[0].scenario.cluster, "models": served, "pay": pay}
    )
    asking = tuple(
        replace(one, scenario=one.scenario.model_copy(update={"rate": rate, "pay": "used"}))
        for one, rate in zip(instances, rates, strict=True)
    )
    return Models(asked, names, asking)


def served_on(instance: Instance, replicas: list[Best]) -> Served_on:
    """Of every number of chips in each pool the most requests/s of any fleet on them."""
    return [
        (taken, float((np.minimum(rates[:, 0], rates[:, 1]) + rates[:, 2]).max()))
        for taken, rates in fleets(instance, replicas)
    ]


def divisions(instance: Instance, found: Sequence[Served_on]) -> list[tuple[float, list[float]]]:
    """Money per hour and each model's requests/s of every way to give each model chips of its own."""
    own = pools(instance)
    sizes = np.array([len(chips) for chips in own])
    prices = np.array([instance.cluster.chip(chips[0]).chip.usd_per_hour for chips in own])
    listed = []
    for each in product(*found):
        taken = np.sum([one for one, _ in each], axis=0)
        if np.all(taken <= sizes):
            listed.append((float(taken @ prices), [rate for _, rate in each]))
    return listed


def least_usd(listed: Sequence[tuple[float, list[float]]], rates: Sequence[float]) -> float | None:
    """Least dollars per hour of divisions that serve the rates."""
    usd = [
        money
        for money, served in listed
        if not any(exceeds(want, have) for want, have in zip(rates, served, strict=True))
    ]
    return min(usd, default=None)


def most_factor(listed: Sequence[tuple[float, list[float]]], rates: Sequence[float]) -> float:
    """The largest factor of all rates that some division serves."""
    return max(
        min(have / want for want, have in zip(rates, served, strict=True)) for _, served in listed
    )
