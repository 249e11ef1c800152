"""No replica, however its experts and layers are placed, serves more than its shape's bound."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from numpy.typing import NDArray

from costmodel.layout.layout import ExpertMap, Layout, spread
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.speculation import Speculative
from costmodel.question.workload import Slo, Workload
from costmodel.replica.replica import price_replica
from solver.bounds.pricing import Pricer
from solver.place.build import build_replica, stage_chips
from solver.place.stages import shortest_longest_stage
from solver.shapes.pools import pool_classes
from solver.shapes.shapes import enumerate_shapes
from solver.shapes.spans import pools_of


@lru_cache
def setting(
    model: str, cluster: str, tokens: int, profile: str, drafts: int
) -> tuple[Instance, Pricer]:
    scenario = Scenario(
        model=model,
        cluster=cluster,
        workload=Workload(input_tokens=tokens, output_tokens=300),
        slo=Slo(ttft=3.0, tpot=0.04),
        profile=profile,
        speculative=Speculative(draft_tokens=drafts, acceptance=0.7) if drafts else None,
    )
    instance = resolve_instance(scenario)
    return instance, Pricer(instance, pool_classes(instance.cluster))


def random_maps(
    rng: np.random.Generator, instance: Instance, slots: tuple[int, ...]
) -> ExpertMap | None:
    """Random experts on each chip, none missing, none twice on a chip, only the busiest copied.

    ``None`` where the experts drawn for the chips leave no room for such copies.
    """
    moe = instance.operations.moe
    assert moe is not None
    spare = sum(slots) - moe.num_experts
    maps = {}
    for layer, loads in zip(instance.operations.moe_layers, instance.expert_loads, strict=True):
        busiest = np.argsort(-loads, kind="stable")[: min(spare, moe.num_experts)]
        order = rng.permutation(moe.num_experts).tolist()
        chips: list[list[int]] = [[] for _ in slots]
        for number, expert in enumerate(order):  # one slot each, round robin over room
            free = [c for c in range(len(slots)) if len(chips[c]) < slots[c]]
            chips[free[number % len(free)]].append(expert)
        for chip, count in zip(chips, slots, strict=True):
            rest = [e for e in rng.permutation(busiest).tolist() if e not in set(chip)]
            chip += rest[: count - len(chip)]
            if len(chip) < count:
                return None
        maps[layer] = tuple(expert for chip in chips for expert in chip)
    return maps


def random_batch(rng: np.random.Generator, most: int, ranks: int) -> NDArray[np.int64]:
    """Sequences of each rank near the most that the bound allows: even, one more on some, or any."""
    near = max(1, most - 1 + int(rng.integers(-2, 4)))
    way = rng.integers(0, 3)
    if way == 0:
        return np.full(ranks, near)
    if way == 1:
        return near + (rng.random(ranks) < rng.random()).astype(np.int64)
    found = rng.integers(0, near + 3, ranks)
    found[0] = max(1, found[0])
    return found


@pytest.mark.parametrize(
    ("model", "cluster", "tokens", "profile", "drafts"),
    [
        ("qwen3-30b-a3b", "hgx-h200@2", 2000, "calibrated", 0),
        ("gpt-oss-120b", "hgx-h100@2", 500, "physics", 0),
        ("deepseek-v3", "gb200-nvl72", 3000, "calibrated", 0),
        ("glm-4.5-air", "hgx-h200", 3000, "calibrated", 2),
        ("llama-3.1-70b", "hgx-h200", 1000, "physics", 0),
    ],
)
def test_random_replicas_stay_below_their_bound(
    model: str, cluster: str, tokens: int, profile: str, drafts: int
) -> None:
    rng = np.random.default_rng(20261121)
    instance, pricer = setting(model, cluster, tokens, profile, drafts)
    shapes = enumerate_shapes(instance, pricer.classes)
    bounds = pricer.bounds(shapes)
    held = 0
    for row in rng.permutation(np.flatnonzero(bounds.per_rank > 0))[:60].tolist():
        shape = shapes.row(row)
        chips = shape["tp"] * shape["attention_dp"]
        slots = tuple(spread(shape["slots"], chips)) if instance.operations.moe else ()
        pool_class = pricer.classes[shape["pool_class"]]
        parts = shapes.parts(row)
        pools = [
            pool.chips[:count]
            for pool, (_, count) in zip(pools_of(parts, pricer.classes), parts, strict=True)
        ]
        layers = instance.operations.num_layers
        ends = sorted(rng.choice(range(1, layers), shape["pp"] - 1, replace=False).tolist())
        if rng.random() < 0.7:  # even stages come near the bound, random ones try its edges
            ends = [layers * s // shape["pp"] for s in range(1, shape["pp"])]
        edges = [0, *ends, layers]
        stages = [(edges[s], edges[s + 1] - 1) for s in range(shape["pp"])]
        maps = random_maps(rng, instance, slots) if any(slots) else {}
        if maps is None:
            continue
        sequences = random_batch(rng, int(bounds.per_rank[row]), shape["attention_dp"])
        most = instance.limits.max_sequences_per_rank
        if shape["role"] == 0:
            most = min(most, shape["pp"] * max(1, 8192 // tokens))
        sequences = np.minimum(sequences, most)
        replica = build_replica(
            instance, shape, sequences.tolist(), stages, slots, stage_chips(shape, pools),
            ["m"] * shape["pp"] if maps else None,
        )  # fmt: skip
        price = price_replica(
            instance, Layout(replicas=(replica,), expert_maps={"m": maps} if maps else {}), replica
        )
        used = max(float(sum(s.memory.values()).max()) for s in price.stages)
        service, slo = price.service, instance.slo
        assert slo.tpot is not None
        assert slo.ttft is not None
        if used > pool_class.chip.hbm_bytes or float(service.tpot_s) > slo.tpot:
            continue
        if float(service.ttft_s) > slo.ttft * 0.99:  # the hand-over may still come on top
            continue
        held += 1
        assert float(service.requests_per_s) <= bounds.requests_per_s[row] * (1 + 1e-9), (
            shape,
            sequences,
        )
    assert held >= 5


def test_shortest_longest_stage_equals_enumeration() -> None:
    from itertools import combinations

    rng = np.random.default_rng(5)
    for _ in range(60):
        kinds = [int(k) for k in np.sort(rng.integers(0, 3, 7))]
        if rng.random() < 0.5:
            kinds = [int(k) for k in rng.permutation(kinds)]
        times, head = rng.uniform(1, 5, 3), float(rng.uniform(0, 4))
        for stages in (1, 2, 3, 4):
            best = min(
                max(
                    sum(times[kinds[i]] for i in range(a, b)) + (head if b == 7 else 0.0)
                    for a, b in zip([0, *cut], [*cut, 7], strict=True)
                )
                for cut in combinations(range(1, 7), stages - 1)
            )
            for shapes in (1, 2):  # one is filled stage by stage, several layer by layer
                found = shortest_longest_stage(
                    [np.full(shapes, t) for t in times], kinds, np.full(shapes, head),
                    np.full(shapes, float(stages)),
                )  # fmt: skip
                assert found.max() <= best * (1 + 1e-9)
                assert found == pytest.approx(np.full(shapes, best), rel=1e-6)


def test_a_table_larger_than_a_chip_rules_out_every_pipeline_of_single_chips() -> None:
    """The first stage holds the whole embedding, however many stages share the layers."""
    instance, pricer = setting("deepseek-v4.1-flash", "gb200-nvl72", 2000, "calibrated", 0)
    shapes = enumerate_shapes(instance, pricer.classes)
    chip = instance.cluster.domains[0].usable[0].chip
    assert instance.operations.embedding_bytes > instance.usable_hbm_bytes(chip)
    assert shapes.pp[shapes.tp == 1].max() > 1
    bounds = pricer.bounds(shapes)
    assert not bounds.requests_per_s[shapes.tp == 1].any()
    assert bounds.requests_per_s[shapes.tp == 2].any()
