"""Tiny clusters whose domains are joined by slow links, and every fleet on them, judged as a whole.

Replicas are those of :mod:`tests.solver.enumeration`; every way to stand them on named chips is tried, and what a
fleet serves is the evaluator's word (:func:`costmodel.replica.fleet.price_fleet` and the rules).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import yaml

from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from costmodel.replica.fleet import price_fleet
from costmodel.replica.replica import ReplicaPrice
from costmodel.rules import rules
from tests import conftest
from tests.solver.enumerated_maps import best_maps
from tests.solver.enumeration import drafts, pools, rate_of
from topology import load_cluster

#: rules that need the whole fleet
_FLEET_RULES = ("both_pools", "rate_served", "ttft_target", "uplink_capacity")


def make_linked(folder: Path, seed: int) -> Instance:
    """A random instance on two or three domains of one or two chips, with NICs of 1 kB/s to 1 MB/s.

    One type of chip computes fast, the other reads fast: apart they serve best, if the links carry their KV.
    """
    rng = np.random.default_rng(seed)
    model = conftest.tiny_model(rng, int(rng.integers(2, 4)), int(rng.choice([0, 0, 0, 2])))
    types = [f"chip{seed}{letter}" for letter in "ab"]
    for name, (flops, bandwidth) in zip(types, ((20.0, 0.3), (0.5, 3.0)), strict=True):
        conftest.write_chip(folder, rng, name, 2e6)
        path = folder / f"{name}.yaml"
        chip = yaml.safe_load(path.read_text())
        chip["flops_per_s"]["bf16"] *= flops
        chip["hbm_bytes_per_s"] *= bandwidth
        path.write_text(yaml.safe_dump(chip))
    sizes = [[1, 1], [2, 1], [2, 2], [1, 1, 1], [1, 2]][int(rng.integers(5))]
    first = int(rng.integers(2))
    domains = [
        {
            "fabric": {"kind": "nvswitch", "links_per_switch": [1]},
            "chips": [
                {
                    "chip": str(folder / f"{types[(first + index) % 2]}.yaml"),
                    "count": size,
                    "nic_bytes_per_s": float(10.0 ** rng.uniform(3, 6)),
                }
            ],
        }
        for index, size in enumerate(sizes)
    ]
    network = {
        "kind": "leaf-spine",
        "oversubscription": float(rng.choice([1.0, 1.0, 2.0, 4.0])),
        "domains_per_unit": int(rng.choice([1, 1, 2])),
    }
    path = folder / f"linked{seed}.yaml"
    path.write_text(
        yaml.safe_dump({"name": f"linked{seed}", "domains": domains, "scale_out": network})
    )
    instance = conftest._instance(rng, model, path, stages=2)
    slo = instance.slo.model_copy(update={"ttft": float(rng.uniform(0.1, 5.0))})
    scenario = instance.scenario.model_copy(
        update={"slo": slo, "pay": str(rng.choice(["whole", "used"]))}
    )
    return replace(instance, scenario=scenario)


def without_limit(instance: Instance) -> Instance:
    """The same question with NICs that carry anything."""
    path = Path(instance.scenario.cluster)
    data = yaml.safe_load(path.read_text())
    for domain in data["domains"]:
        domain["chips"][0]["nic_bytes_per_s"] = 1e12
    fast = path.with_name(f"fast-{path.name}")
    fast.write_text(yaml.safe_dump(data))
    scenario = instance.scenario.model_copy(update={"cluster": str(fast)})
    return replace(instance, scenario=scenario, cluster=load_cluster(fast))


@dataclass(frozen=True)
class Option:
    """A replica on chips that stand for those it takes in each pool."""

    taken: tuple[int, ...]
    replica: Replica
    price: ReplicaPrice
    maps: dict[int, tuple[int, ...]]


def options(instance: Instance) -> list[Option]:
    """Replicas that keep their own rules; of like ones those with most rate, or the earliest first token."""
    found: dict[tuple[object, ...], list[Option]] = {}
    for taken in _takings(instance):
        for draft, slots in drafts(instance, taken):
            wide = sum(n > 0 for n in taken) > 1
            for maps in best_maps(instance, draft) if slots else [{}]:
                rate, price = rate_of(instance, draft, maps, 0.0)
                if rate <= 0:
                    continue
                batch = draft.shape.batch if wide else 0
                key = (draft.role, taken, draft.shape.tp, draft.shape.pp, slots, batch)
                found.setdefault(key, []).append(Option(taken, draft, price, maps))
    kept = []
    for like in found.values():
        for one in like:
            rate, ttft = one.price.service.requests_per_s, one.price.service.ttft_s
            if not any(
                other is not one
                and other.price.service.requests_per_s >= rate
                and other.price.service.ttft_s <= ttft
                and (
                    other.price.service.requests_per_s > rate
                    or other.price.service.ttft_s < ttft
                    or like.index(other) < like.index(one)
                )
                for other in like
            ):
                kept.append(one)
    return kept


def _takings(instance: Instance) -> Iterator[tuple[int, ...]]:
    """Every number of chips in each pool, of one chip type."""
    own = pools(instance)
    names = [instance.cluster.chip(chips[0]).chip.name for chips in own]
    for taken in product(*(range(len(chips) + 1) for chips in own)):
        if len({name for name, count in zip(names, taken, strict=True) if count}) == 1:
            yield taken


def least_cost(instance: Instance) -> float | None:
    """Least dollars per hour and request per second of any fleet, by the evaluator."""
    own = pools(instance)
    usd = [instance.cluster.chip(chips[0]).chip.usd_per_hour for chips in own]
    whole = sum(price * len(chips) for price, chips in zip(usd, own, strict=True))
    best = None
    for chosen in _fleets(options(instance), [len(chips) for chips in own], 0):
        served = _served(instance, own, chosen)
        if served <= 0:
            continue
        used = sum(usd[p] * count for one in chosen for p, count in enumerate(one.taken))
        cost = (whole if instance.scenario.pay == "whole" else used) / served
        best = cost if best is None else min(best, cost)
    return best


def _fleets(found: list[Option], free: list[int], start: int) -> Iterator[list[Option]]:
    """Every multiset of options whose chips there are."""
    for index in range(start, len(found)):
        one = found[index]
        if all(count <= left for count, left in zip(one.taken, free, strict=True)):
            yield [one]
            left = [a - b for a, b in zip(free, one.taken, strict=True)]
            for rest in _fleets(found, left, index):
                yield [one, *rest]


def _served(instance: Instance, own: list[list[str]], chosen: list[Option]) -> float:
    """Requests per second of a fleet, 0 where it breaks a rule."""
    free = [list(chips) for chips in own]
    replicas = []
    for one in chosen:
        moved: dict[str, str] = {}
        for pool, count in enumerate(one.taken):
            moved.update(zip(own[pool][:count], free[pool][:count], strict=True))
            free[pool] = free[pool][count:]
        replicas.append(
            one.replica.model_copy(
                update={
                    "stages": tuple(
                        stage.model_copy(update={"chips": tuple(moved[c] for c in stage.chips)})
                        for stage in one.replica.stages
                    ),
                    "kv": tuple(
                        share.model_copy(update={"chip": moved[share.chip]})
                        for share in one.replica.kv
                    ),
                }
            )
        )
    layout = Layout(replicas=tuple(replicas), expert_maps={})
    priced = price_fleet(instance, layout, tuple(one.price for one in chosen))
    checks = rules(structure=False)
    if any(checks[name](instance, layout, priced) for name in _FLEET_RULES):
        return 0.0
    return priced.requests_per_s
