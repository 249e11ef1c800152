"""Layers that share their slots: bounds hold for every share of tiny instances, answers are within them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout, Replica
from costmodel.passes.communication import rates_of_chips
from costmodel.question.instance import Instance, instance_from_description, resolve_instance
from costmodel.replica.replica import replica_schedule
from rackfit.cli.question import build_scenario
from solver.answer import SearchResult
from solver.clock import Clock
from solver.experts.layer_slots import even_spread
from solver.search import search
from solver.shapes.shapes import slot_counts
from solver.verify import usd_per_m_output
from tests.solver.enumerated_fleets import least_cost
from tests.solver.enumerated_maps import layer_times, not_worse, placements
from tests.solver.enumeration import (
    Best,
    best_replicas,
    drafts,
    hand_over_s,
    rate_of,
    takings,
)
from tests.solver.test_exhaustive import replicas_below_bounds
from topology.errors import InstanceError, NoFeasibleLayout

Tiny = Callable[[int, int, int, int], Instance]
#: slots and experts of one layer, chip by chip
Option = tuple[tuple[int, ...], tuple[int, ...]]


def sharing(instance: Instance, how: str) -> Instance:
    scenario = instance.scenario.model_copy(update={"layer_slots": how})
    return replace(instance, scenario=scenario)


def options(instance: Instance, draft: Replica, layer: int, *, rows: bool) -> Iterator[Option]:
    """Every number of slots of a layer, on any chips as evenly as can be, with experts placed as no worse way is."""
    chips, moe = len(draft.stages[0].chips), instance.operations.moe
    assert moe is not None
    counts = slot_counts(instance, chips)
    plan = replica_schedule(instance, draft)
    rates = rates_of_chips(
        instance.cluster, [draft.stages[0].chips], draft.shape.tp, moe.top_k,
        instance.profile.for_chip(instance.cluster.chip(draft.stages[0].chips[0]).chip.name),
    )[0]  # fmt: skip
    for slots in range(counts[0], counts[-1] + 1):
        if rows and slots % chips:
            continue
        each = even_spread(slots, chips)
        stage = draft.stages[0].model_copy(update={"slots_per_chip": each})
        one = draft.model_copy(update={"stages": (stage,)})
        passes = [tokens for tokens in (plan.decode, plan.prefill) if tokens is not None]
        each_pass = [layer_times(instance, one, rates, layer, t) for t in passes]
        times = np.concatenate(each_pass, axis=1)
        ways = placements(moe.num_experts, each)
        ends = np.cumsum(each)
        for way in not_worse(times):
            chip_rows = [
                tuple(ways[way][end - n : end].tolist()) for end, n in zip(ends, each, strict=True)
            ]
            for order in {tuple(each[c] for c in order): order for order in permutations(range(chips))}.values():  # fmt: skip
                experts = tuple(expert for chip in order for expert in chip_rows[chip])
                yield tuple(each[chip] for chip in order), experts


def unlike_replicas(instance: Instance, *, rows: bool) -> list[Best]:
    """The best replica of one stage whose layers have any numbers of slots, by shape and range of slots."""
    found: dict[tuple[object, ...], Best] = {}
    layers = instance.operations.moe_layers
    for taken in takings(instance):
        for draft, slots in drafts(instance, taken):
            width = draft.shape.chips_per_stage
            counts = slot_counts(instance, width)
            if draft.shape.pp > 1 or width == 1 or slots != counts[0]:
                continue
            transfer = hand_over_s(instance, draft)[1]
            if not np.isfinite(transfer):
                continue
            for shares in product(*(list(options(instance, draft, k, rows=rows)) for k in layers)):
                total = sum(sum(own) for own, _ in shares)
                top = min(count for count in counts if total <= count * len(layers))
                held = {k: own for k, (own, _) in zip(layers, shares, strict=True)}
                stage = draft.stages[0].model_copy(update={"layer_slots": held})
                replica = draft.model_copy(update={"stages": (stage,)})
                maps = {k: row for k, (_, row) in zip(layers, shares, strict=True)}
                rate, _ = rate_of(instance, replica, maps, transfer)
                key = (draft.role, taken, draft.shape.tp, top)
                if rate > (found[key].rate if key in found else 0.0):
                    found[key] = Best(
                        draft.role, taken, draft.shape.tp, 1, top, rate, replica, maps
                    )
    return list(found.values())


def solved(instance: Instance) -> SearchResult | None:
    try:
        return search(instance, clock=Clock(60), gap=0.0)
    except NoFeasibleLayout:
        return None


SIZES = [(2, 2, 2), (2, 2, 3), (3, 2, 2)]
#: as many again, larger
LARGER = [(2, 3, 3), (3, 2, 3), (2, 2, 4)]


@pytest.mark.parametrize("how", ["rows", "any"])
@pytest.mark.parametrize(
    ("chips", "layers", "experts"),
    [*SIZES, *(pytest.param(*size, marks=pytest.mark.slow) for size in LARGER)],
)
def test_no_share_of_the_slots_beats_its_bound(
    tiny: Tiny, chips: int, layers: int, experts: int, how: str
) -> None:
    compared = 0
    for seed in (1000, 1001):
        instance = sharing(tiny(seed, chips, layers, experts), how)
        unlike = unlike_replicas(instance, rows=how == "rows")
        compared += replicas_below_bounds(instance, unlike)
        least = least_cost(instance, [*best_replicas(instance, near=True), *unlike])
        found = solved(instance)
        if found is None:
            continue
        assert least is not None
        judged = evaluate(instance, found.layout)
        assert judged.feasible
        scale = usd_per_m_output(instance) * (1 + 1e-9)
        assert found.certificate.bound_usd_per_m_output_tokens <= least * scale
        assert judged.usd_per_m_output_tokens is not None
        assert judged.usd_per_m_output_tokens >= least * usd_per_m_output(instance) * (1 - 1e-9)
    assert compared


@pytest.mark.usefixtures("uncut")
@pytest.mark.parametrize("seed", [2001, 2006])
def test_sharing_is_cheaper_and_the_best_there_is(tiny: Tiny, seed: int) -> None:
    """Three experts on two chips: the chip with two takes turns, so both have room for one more sequence."""
    alike, instance = tiny(seed, 2, 2, 3), sharing(tiny(seed, 2, 2, 3), "any")
    before, after = solved(alike), solved(instance)
    assert before is not None
    assert after is not None
    least = least_cost(instance, unlike_replicas(instance, rows=False))
    assert least is not None
    found = after.evaluation.usd_per_m_output_tokens
    assert found == pytest.approx(least * usd_per_m_output(instance))
    assert found is not None
    assert found < 0.7 * (before.evaluation.usd_per_m_output_tokens or 0.0)
    assert any(stage.unlike for replica in after.layout.replicas for stage in replica.stages)
    assert Layout.model_validate_json(after.layout.model_dump_json()) == after.layout
    assert any("whatever the others have" in line for line in after.certificate.covers)
    assert any("the same in every layer" in line for line in before.certificate.covers)


@pytest.mark.usefixtures("uncut")
def test_sharing_serves_where_equal_slots_do_not_fit(tiny: Tiny) -> None:
    # in one stage: two hold as much with equal slots
    one = tiny(2008, 2, 2, 3)
    limits = one.scenario.limits.model_copy(update={"max_pipeline_stages": 1})
    one = replace(one, scenario=one.scenario.model_copy(update={"limits": limits}))
    assert solved(one) is None
    assert solved(sharing(one, "any")) is not None


def test_an_engine_and_unlike_layers_are_refused_together() -> None:
    asked = build_scenario(
        None, model="gpt-oss-20b", cluster="hgx-h100", engine="sglang", layer_slots="rows"
    )
    with pytest.raises(InstanceError, match="rows: SGLang gives every layer equally many slots"):
        resolve_instance(asked)


def test_the_question_keeps_how_slots_are_shared() -> None:
    asked = build_scenario(None, model="gpt-oss-20b", cluster="hgx-h100", layer_slots="any")
    described = resolve_instance(asked).describe()
    assert described["scenario"]["layer_slots"] == "any"
    assert instance_from_description(described, "file").scenario.layer_slots == "any"
    plain = build_scenario(None, model="gpt-oss-20b", cluster="hgx-h100", layer_slots="same")
    assert "layer_slots" not in resolve_instance(plain).describe()["scenario"]
