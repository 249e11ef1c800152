"""Fixing a layout in the model of the whole replica is feasible exactly when the evaluator agrees.

Random decisions, good and bad: experts missing or doubled within a chip cannot even be written in the
model, so these are checked to be rejected by the evaluator; stages, sequences, batches and targets
are drawn so that both verdicts occur often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import pytest
from ortools.sat.python import cp_model

from costmodel.evaluate import evaluate
from costmodel.layout.layout import KvShare, Layout, Replica, Role, Shape, Stage
from costmodel.models.spec import Attention
from costmodel.passes.communication import crossing, ranks_of, rates_of_chips
from costmodel.question.instance import Instance
from solver.place.small_replica.model import ReplicaModel
from solver.rules import rules

Tiny = Callable[[int, int, int, int], Instance]

#: the rules that a replica keeps alone
RULES = {name for name, rule in rules().items() if rule.OF == "replica"}


def random_replica(
    rng: np.random.Generator, instance: Instance, ids: Sequence[str]
) -> tuple[Replica, dict[int, tuple[int, ...]]]:
    """A replica on these chips with random stages, batch, sequences per rank and expert slots."""
    chips = len(ids)
    moe = instance.operations.moe
    layers = len(instance.model.layers)
    pp = int(rng.choice([p for p in (1, 2) if chips % p == 0 and p <= layers]))
    ranks = chips // pp if moe else 1
    tp = 1 if moe else chips // pp
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
        KvShare(chip=stages[0].chips[rank * tp], sequences=int(count))
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
    role = cast(Role, str(rng.choice(["prefill", "decode", "mixed"])))
    return Replica(role=role, shape=shape, stages=stages, kv=kv), maps


def fix(model: ReplicaModel, replica: Replica, maps: Mapping[int, Sequence[int]]) -> None:
    """Fix the decision of a replica: its stages, its expert maps, its sequences per rank."""
    for p, stage in enumerate(replica.stages):
        for layer in model.layers:
            inside = stage.layers[0] <= layer <= stage.layers[1]
            model.model.add(model.stage[layer, p] == int(inside))
    for layer, slots in maps.items():
        start = 0
        for g, count in enumerate(model.slots):
            here = slots[start : start + count]
            start += count
            for e in range(len(model.instance.expert_loads[0])):
                model.model.add(model.x[layer, e, g] == here.count(e))
    for variable, count in zip(model.sequences, replica.rank_sequences(), strict=True):
        model.model.add(variable == count)


def random_slots(rng: np.random.Generator, experts: int, chips: int, each: int) -> tuple[int, ...]:
    """Random distinct experts on each chip, drawn again until none is missing."""
    while True:
        slots = [rng.choice(experts, each, replace=False).tolist() for _ in range(chips)]
        if {e for chip in slots for e in chip} == set(range(experts)):
            return tuple(e for chip in slots for e in chip)


def model_says(instance: Instance, replica: Replica, maps: dict[int, tuple[int, ...]]) -> bool:
    """Whether the fixed replica is feasible in CP-SAT."""
    moe = instance.operations.moe
    chip = instance.cluster.chip(replica.chips[0]).chip
    efficiency = instance.profile.for_chip(chip.name)
    chips = [stage.chips for stage in replica.stages]
    rates = rates_of_chips(
        instance.cluster, chips, replica.shape.tp, moe.top_k if moe else 0, efficiency
    )[0]
    model = ReplicaModel(
        instance, replica, chip, efficiency, rates, replica.stages[0].slots() if moe else ()
    )
    fix(model, replica, maps)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model.model)
    assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE, cp_model.FEASIBLE)
    return status != cp_model.INFEASIBLE


def compare(
    rng: np.random.Generator, instance: Instance, ids: Sequence[str], verdicts: Counter[bool]
) -> None:
    """Draw a replica and fail unless model and evaluator say the same of it."""
    heads = {
        part.query_heads
        for layer in instance.model.layers
        for part in layer.sublayers
        if isinstance(part, Attention)
    }
    replica, maps = random_replica(rng, instance, ids)
    if any(count % replica.shape.tp for count in heads) or not alike(instance, replica):
        return
    layout = Layout(replicas=(replica,), expert_maps={"m": maps} if maps else {})
    stages, tp = replica.stages, replica.shape.tp
    if any(crossing(instance.cluster, r) for stage in stages for r in ranks_of(stage.chips, tp)):
        return  # no shape is built so
    found = evaluate(instance, layout).violations
    broken = {violation.rule for violation in found} & RULES
    verdict = model_says(instance, replica, maps)
    assert verdict == (not broken), broken
    verdicts[verdict] += 1


def alike(instance: Instance, replica: Replica) -> bool:
    """Whether all stages have the same rates, as the model of a replica takes for granted."""
    moe = instance.operations.moe
    name = instance.cluster.chip(replica.chips[0]).chip.name
    rates = rates_of_chips(
        instance.cluster, [stage.chips for stage in replica.stages], replica.shape.tp,
        moe.top_k if moe else 0, instance.profile.for_chip(name),
    )  # fmt: skip
    fields = rates[0].__dataclass_fields__
    return all(float(getattr(r, f)) == float(getattr(rates[0], f)) for r in rates for f in fields)


CASES = [(3, 0), (2, 2), (3, 3), (2, 4), (4, 2)]


def compare_tiny(tiny: Tiny, layers: int, experts: int, seeds: range) -> Counter[bool]:
    """Four random replicas on each of some instances of one domain."""
    rng = np.random.default_rng(layers * 10 + experts)
    verdicts: Counter[bool] = Counter()
    for seed in seeds:
        chips = int(rng.integers(2, 5))
        instance = tiny(5000 + seed, chips, layers, experts)
        ids = [placed.id for placed in instance.cluster.chips]
        for _ in range(4):
            compare(rng, instance, ids, verdicts)
    return verdicts


@pytest.mark.parametrize(("layers", "experts"), CASES)
def test_model_and_evaluator_agree(tiny: Tiny, layers: int, experts: int) -> None:
    verdicts = compare_tiny(tiny, layers, experts, range(30))
    assert verdicts[True] > 5
    assert verdicts[False] > 5


@pytest.mark.parametrize(("layers", "experts"), [(3, 0), (2, 3)])
def test_they_agree_with_drafted_tokens(drafting: Tiny, layers: int, experts: int) -> None:
    verdicts = compare_tiny(drafting, layers, experts, range(20))
    assert min(verdicts[True], verdicts[False]) > 5


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "experts"), CASES)
def test_model_and_evaluator_agree_on_many(tiny: Tiny, layers: int, experts: int) -> None:
    verdicts = compare_tiny(tiny, layers, experts, range(100, 230))
    print(f"{layers} layers, {experts} experts: {dict(verdicts)}")
    assert min(verdicts[True], verdicts[False]) > 40


@pytest.mark.slow
def test_model_and_evaluator_agree_on_odd_clusters(odd: Callable[[int], Instance]) -> None:
    rng = np.random.default_rng(11)
    verdicts: Counter[bool] = Counter()
    for seed in range(300):
        instance = odd(8000 + seed)
        by_type: dict[str, list[str]] = {}
        for placed in instance.cluster.usable:
            by_type.setdefault(placed.chip.name, []).append(placed.id)
        for ids in by_type.values():
            for _ in range(2):
                compare(rng, instance, ids[: int(rng.integers(1, len(ids) + 1))], verdicts)
    print(f"odd clusters: {dict(verdicts)}")
    assert min(verdicts[True], verdicts[False]) > 40
