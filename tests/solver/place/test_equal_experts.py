"""Experts of equal load may be exchanged: a search for their places does not go through what differs in that alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from ortools.sat.python import cp_model

from costmodel.layout.layout import KvShare, Replica, Role, Shape, Stage
from costmodel.passes.communication import rates_of_chips
from costmodel.question.instance import Instance
from solver.clock import Clock, one_worker
from solver.place.small_replica.model import ReplicaModel

Tiny = Callable[[int, int, int, int], Instance]
#: loads of which some are alike, by number of experts
LOADS = {
    3: [(1, 1, 1), (2, 1, 1), (1, 3, 1)],
    4: [(1, 1, 1, 1), (2, 1, 2, 1), (3, 1, 1, 1)],
    5: [(1, 1, 1, 1, 1), (1, 4, 1, 1, 4)],
}


def model_of(
    instance: Instance, role: Role, pp: int, per_chip: int, layers: list[int] | None = None
) -> ReplicaModel:
    """Of a replica on all chips, with two sequences a rank."""
    ids = [placed.id for placed in instance.cluster.chips]
    ranks, count = len(ids) // pp, len(instance.model.layers)
    ends = [0, *(count * (s + 1) // pp for s in range(pp))]
    groups = [tuple(ids[s * ranks : (s + 1) * ranks]) for s in range(pp)]
    stages = tuple(
        Stage(layers=(ends[s], ends[s + 1] - 1), chips=groups[s], slots_per_chip=per_chip, expert_map="m")
        for s in range(pp)
    )  # fmt: skip
    shape = Shape(tp=1, ep=ranks, pp=pp, attention_dp=ranks, batch=2 * ranks)
    kv = tuple(KvShare(chip=chip, sequences=2) for chip in groups[0])
    replica = Replica(role=role, shape=shape, stages=stages, kv=kv)
    chip, moe = instance.cluster.chip(ids[0]).chip, instance.operations.moe
    assert moe is not None
    efficiency = instance.profile.for_chip(chip.name)
    rates = rates_of_chips(instance.cluster, groups, 1, moe.top_k, efficiency)[0]
    return ReplicaModel(
        instance, replica, chip, efficiency, rates, stages[0].slots(), layers=layers
    )


def loaded(instance: Instance, loads: tuple[int, ...]) -> Instance:
    """The same with these loads, turned by one from layer to layer."""
    rows = [np.roll(loads, layer) for layer in range(len(instance.operations.moe_layers))]
    return replace(instance, expert_loads=np.array(rows) / sum(loads))


def least(model: ReplicaModel) -> float | None:
    """Its least objective; ``None`` where no decision fits."""
    model.model.minimize(model.objective)
    solver = one_worker()
    status = solver.solve(model.model)
    assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    return solver.objective_value if status == cp_model.OPTIMAL else None


@pytest.mark.parametrize("experts", LOADS)
def test_in_order_the_best_replica_is_as_good(tiny: Tiny, experts: int) -> None:
    fitted = 0
    for seed, loads in enumerate(LOADS[experts]):
        for role, pp, more in (
            ("decode", 1, 0),
            ("decode", 2, 1),
            ("mixed", 2, 0),
            ("prefill", 1, 1),
        ):
            instance = loaded(tiny(7000 + 10 * experts + seed, 2 * pp, 2, experts), loads)
            per_chip = min(experts, -(-experts // 2) + more)
            model, ordered = (model_of(instance, role, pp, per_chip) for _ in range(2))  # type: ignore[arg-type]
            ordered._order_alike()
            best = least(model)
            assert least(ordered) == best
            fitted += best is not None
    assert fitted > len(LOADS[experts])


def test_places_of_many_equal_experts_are_proven_at_once(tiny: Tiny) -> None:
    """Of 24 equal experts on three chips none was, in any time that a search has: a gap of 41 % stayed."""
    instance = loaded(tiny(7100, 3, 1, 24), (1,) * 24)
    found = model_of(instance, "decode", 1, 8, layers=[0]).best(Clock(), seed=0, limit_s=1.0)
    assert found is not None
    _, maps, proven = found
    assert proven
    assert sorted(maps[0]) == list(range(24))
