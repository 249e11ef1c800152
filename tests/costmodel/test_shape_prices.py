"""Bulk prices of shapes are those of the evaluator, figure by figure, for random shapes and batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import KvShare, Layout, Replica, Role, Shape, Stage, spread
from costmodel.models.spec import Attention
from costmodel.passes.communication import rates_of_chips, stack_rates
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.shape_prices import Shapes, price_shapes
from topology.errors import InstanceError

ROLES: tuple[Role, ...] = ("prefill", "decode", "mixed")


def asked(model: str, cluster: str, **changes: Any) -> Instance:
    workload = {"input_tokens": 4000, "output_tokens": 1000, "expert_load": "uniform"}
    scenario = {"model": model, "cluster": cluster, "workload": workload, "pay": "used"}
    return resolve_instance(Scenario.model_validate(scenario | changes))


def even_layout(
    instance: Instance, role: Role, tp: int, ranks: int, pp: int, per_rank: int
) -> Layout:
    """One replica on the first chips: one copy of each expert, layers and experts as even as they go."""
    moe, chips = instance.operations.moe, tp * ranks
    ids = [placed.id for placed in instance.cluster.usable]
    ends = np.cumsum([0, *spread(instance.operations.num_layers, pp)]).tolist()
    slots = tuple(spread(moe.num_experts, chips)) if moe else None
    row = tuple(range(moe.num_experts)) if moe else ()
    stages = tuple(
        Stage(
            layers=(ends[s], ends[s + 1] - 1),
            chips=tuple(ids[s * chips : (s + 1) * chips]),
            slots_per_chip=slots,
            expert_map="even" if moe else None,
        )
        for s in range(pp)
    )
    kv = tuple(KvShare(chip=c, sequences=per_rank * pp, bytes=0) for c in stages[0].chips[::tp])
    shape = Shape(
        tp=tp, ep=chips if moe else 1, pp=pp, attention_dp=ranks, batch=per_rank * pp * ranks
    )
    replica = Replica(role=role, shape=shape, stages=stages, kv=kv)
    maps = {"even": dict.fromkeys(instance.operations.moe_layers, row)} if moe else {}
    return Layout(replicas=(replica,), expert_maps=maps)


def drawn(
    rng: np.random.Generator, instance: Instance, role: Role, count: int
) -> list[tuple[int, ...]]:
    """Random ``(tp, ranks, pp, per_rank)`` that the cluster has chips for."""
    heads = [p.query_heads for p in instance.model.layers[0].sublayers if isinstance(p, Attention)]
    chips = len(instance.cluster.usable)
    found: list[tuple[int, ...]] = []
    while len(found) < count:
        tp, ranks = int(rng.choice([1, 1, 2, 4, 8])), int(rng.integers(1, chips + 1))
        pp = int(rng.choice([1, 1, 2, 3, 5, 7]))
        if heads[0] % tp or tp * ranks * pp > chips:
            continue
        most = 3 if role == "prefill" else 400
        found.append((tp, ranks, pp, int(rng.integers(1, most))))
    return found


def figures(found: Evaluation) -> list[float]:
    """The evaluator's figures in the order of :func:`compare`."""
    (price,) = found.priced.replicas
    service = price.service
    held = max(float(stage.used_bytes.max()) for stage in price.stages)
    assert found.usd_per_hour is not None
    usd = found.usd_per_hour / 3600.0 / float(service.requests_per_s)
    times = (service.requests_per_s, service.tpot_s, service.ttft_s, service.ttft_mean_s)
    return [*(float(value) for value in times), held, usd]


def compare(instance: Instance, role: Role, items: list[tuple[int, ...]]) -> None:
    """Price shapes ``(tp, ranks, pp, per_rank)`` both ways and fail where a figure differs."""
    layouts = [even_layout(instance, role, *item) for item in items]
    chip = instance.cluster.usable[0].chip
    moe = instance.operations.moe
    rates = [
        rates_of_chips(
            instance.cluster,
            [stage.chips for stage in layout.replicas[0].stages],
            item[0],
            moe.top_k if moe else 0,
            instance.profile.for_chip(chip.name),
        )[0]
        for item, layout in zip(items, layouts, strict=True)
    ]
    tp, ranks, pp, per_rank = np.array(items, dtype=float).T
    prices = price_shapes(instance, Shapes(role, chip, tp, ranks, pp, per_rank, stack_rates(rates)))
    service = prices.service
    bulk = np.stack(
        [
            service.requests_per_s, service.tpot_s, service.ttft_s, service.ttft_mean_s,
            prices.hbm_bytes, prices.usd_per_request,
        ]
    ).T  # fmt: skip
    for own, layout, fits in zip(bulk, layouts, prices.fits, strict=True):
        evaluation = evaluate(instance, layout)
        rules = {violation.rule for violation in evaluation.violations}
        assert rules <= {"both_pools", "hbm_capacity"}, evaluation.violations
        assert own.tolist() == pytest.approx(figures(evaluation), rel=1e-9)
        assert bool(fits) == ("hbm_capacity" not in rules)


@pytest.mark.parametrize(
    ("model", "cluster"),
    [
        ("deepseek-v3", "gb200-nvl72"),
        ("llama-3.1-70b", "hgx-h100"),
        ("gpt-oss-120b", "gb200-nvl72"),
    ],
)
@pytest.mark.parametrize("role", ROLES)
def test_bulk_prices_are_the_evaluators(model: str, cluster: str, role: Role) -> None:
    instance = asked(model, cluster)
    rng = np.random.default_rng(len(model) + len(role))
    compare(instance, role, drawn(rng, instance, role, 40))


@pytest.mark.parametrize("profile", ["physics", "calibrated:sglang"])
@pytest.mark.parametrize("role", ROLES)
def test_other_profiles_and_drafts(profile: str, role: Role) -> None:
    drafts = {"draft_tokens": 2, "acceptance": 0.8}
    instance = asked("deepseek-v3", "gb200-nvl72", profile=profile, speculative=drafts)
    compare(instance, role, [(1, 8, 1, 2), (8, 1, 1, 1), (2, 4, 3, 2), (1, 35, 2, 3)])


def test_many_blocks_are_priced_as_one_by_one() -> None:
    instance = asked("gpt-oss-120b", "hgx-b200")
    chip = instance.cluster.usable[0].chip
    count = 2500
    rng = np.random.default_rng(1)
    tp, ranks, pp = (rng.choice(own, count).astype(float) for own in ([1, 2], [1, 2, 3], [1, 2, 4]))
    rates = stack_rates(
        rates_of_chips(instance.cluster, [["r0g0", "r0g1"], ["r0g2", "r0g3"]], 2, 4,
                       instance.profile.for_chip(chip.name))[:1] * count
    )  # fmt: skip
    per_rank = rng.integers(1, 100, count).astype(float)
    shapes = Shapes("mixed", chip, tp, ranks, pp, per_rank, rates)
    whole = price_shapes(instance, shapes)
    for index in rng.choice(count, 20, replace=False).tolist():
        one = price_shapes(instance, shapes.take(slice(index, index + 1)))
        assert float(one.service.ttft_s[0]) == float(whole.service.ttft_s[index])
        assert float(one.hbm_bytes[0]) == float(whole.hbm_bytes[index])
        assert float(one.step_s[0]) == float(whole.step_s[index])


def test_passes_in_two_halves_are_refused() -> None:
    instance = asked("gpt-oss-120b", "hgx-b200", two_batch_overlap=True)
    rates = stack_rates(
        rates_of_chips(instance.cluster, [["r0g0"]], 1, 4, instance.profile.default)
    )
    one = np.ones(1)
    shapes = Shapes("decode", instance.cluster.usable[0].chip, one, one, one, one, rates)
    with pytest.raises(InstanceError, match="two_batch_overlap"):
        price_shapes(instance, shapes)
