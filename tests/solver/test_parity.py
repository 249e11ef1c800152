"""Fixing a layout in the model of the whole replica is feasible exactly when the evaluator agrees.

Random decisions, good and bad: experts missing or doubled within a chip cannot even be written in the
model, so these are checked to be rejected by the evaluator; stages, sequences, batches and targets
are drawn so that both verdicts occur often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from ortools.sat.python import cp_model

from costmodel.communication import rates_of_chips
from costmodel.evaluate import evaluate
from costmodel.instance import Instance
from costmodel.layout import KvShare, Layout, Replica, Shape, Stage
from solver.replica_model import ReplicaModel

Tiny = Callable[[int, int, int, int], Instance]

#: rules of a replica; the others belong to the whole fleet
RULES = {"experts_placed", "hbm_capacity", "kv_placed", "layers_covered", "shape_matches", "tpot_target", "ttft_target"}  # fmt: skip


def random_replica(
    rng: np.random.Generator, instance: Instance, chips: int
) -> tuple[Replica, dict[int, tuple[int, ...]]]:
    """A replica with random stages, batch, sequences per rank and expert slots."""
    moe = instance.operations.moe
    layers = len(instance.model.layers)
    pp = int(rng.choice([p for p in (1, 2) if chips % p == 0 and p <= layers]))
    ranks = chips // pp if moe else 1
    tp = 1 if moe else chips // pp
    ids = [placed.id for placed in instance.cluster.chips][:chips]
    ends = [0, *sorted(rng.choice(range(1, layers), pp - 1, replace=False).tolist()), layers]
    per_chip = 0
    maps: dict[int, tuple[int, ...]] = {}
    if moe:
        least = -(-moe.num_experts // ranks)
        per_chip = int(rng.integers(least, moe.num_experts + 1))
        for layer in instance.operations.moe_layers:
            maps[layer] = random_slots(rng, moe.num_experts, ranks, per_chip)
    stages = tuple(
        Stage(
            layers=(ends[s], ends[s + 1] - 1),
            chips=tuple(ids[s * tp * ranks : (s + 1) * tp * ranks]),
            slots_per_chip=per_chip or None,
            expert_map="m" if moe else None,
        )
        for s in range(pp)
    )
    sequences = rng.integers(1, 4, ranks)
    kv = tuple(
        KvShare(chip=stages[0].chips[rank * tp], sequences=int(count), bytes=0)
        for rank, count in enumerate(sequences)
    )
    wrong = int(rng.random() < 0.1)  # now and then a batch that the sequences do not add up to
    shape = Shape(
        tp=tp,
        ep=tp * ranks if moe else 1,
        pp=pp,
        attention_dp=ranks,
        batch=int(sequences.sum()) + wrong,
    )
    role = str(rng.choice(["prefill", "decode", "mixed"]))
    return Replica(role=role, shape=shape, stages=stages, kv=kv), maps  # type: ignore[arg-type]


def random_slots(rng: np.random.Generator, experts: int, chips: int, each: int) -> tuple[int, ...]:
    """Random distinct experts on each chip, drawn again until none is missing."""
    while True:
        slots = [rng.choice(experts, each, replace=False).tolist() for _ in range(chips)]
        if {e for chip in slots for e in chip} == set(range(experts)):
            return tuple(e for chip in slots for e in chip)


def model_says(instance: Instance, replica: Replica, maps: dict[int, tuple[int, ...]]) -> bool:
    """Whether the fixed replica is feasible in CP-SAT."""
    moe = instance.operations.moe
    chip = instance.cluster.chips[0].chip
    efficiency = instance.profile.for_chip(chip.name)
    chips = [stage.chips for stage in replica.stages]
    rates = rates_of_chips(
        instance.cluster, chips, replica.shape.tp, moe.top_k if moe else 0, efficiency
    )[0]
    model = ReplicaModel(
        instance, replica, chip, efficiency, rates, replica.stages[0].slots() if moe else ()
    )
    model.fix(replica, maps)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model.model)
    assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE, cp_model.FEASIBLE)
    return status != cp_model.INFEASIBLE


@pytest.mark.parametrize(("layers", "experts"), [(3, 0), (2, 2), (3, 3), (2, 4), (4, 2)])
def test_model_and_evaluator_agree(tiny: Tiny, layers: int, experts: int) -> None:
    agree(tiny, layers, experts, seeds=30)


@pytest.mark.parametrize(("layers", "experts"), [(3, 0), (2, 3)])
def test_they_agree_with_drafted_tokens(drafting: Tiny, layers: int, experts: int) -> None:
    agree(drafting, layers, experts, seeds=20)


def agree(make: Tiny, layers: int, experts: int, *, seeds: int) -> None:
    """Random layouts of random instances: one verdict of the model and of the evaluator."""
    rng = np.random.default_rng(layers * 10 + experts)
    verdicts: Counter[bool] = Counter()
    for seed in range(seeds):
        chips = int(rng.integers(2, 5))
        instance = make(5000 + seed, chips, layers, experts)
        heads = {p.query_heads for layer in instance.model.layers for p in layer.sublayers[:1]}  # type: ignore[union-attr]
        for _ in range(4):
            replica, maps = random_replica(rng, instance, chips)
            if any(count % replica.shape.tp for count in heads):
                continue
            layout = Layout(replicas=(replica,), expert_maps={"m": maps} if maps else {})
            broken = {v.rule for v in evaluate(instance, layout).violations} & RULES
            verdict = model_says(instance, replica, maps)
            assert verdict == (not broken), broken
            verdicts[verdict] += 1
    assert verdicts[True] > 5
    assert verdicts[False] > 5
