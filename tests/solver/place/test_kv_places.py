"""Where KV lies: the optimum over places equals enumeration, and the bound is below every layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.layout import KvShare, Layout
from costmodel.question.instance import Instance
from solver.clock import Clock
from solver.search import search
from tests.solver.place.enumerated_places import enumerate_best, replicas, with_tiers
from topology.errors import NoFeasibleLayout, NoLayoutInTime

Tiny = Callable[[int, int, int, int], Instance]
SLOW = [
    pytest.param(seed, marks=pytest.mark.slow) for seed in (*range(2001, 2006), *range(2007, 2030))
]


@pytest.mark.parametrize("seed", [2000, *SLOW])
def test_best_places_equal_enumeration(tiny: Tiny, seed: int) -> None:
    compare_with_enumeration(with_tiers(tiny(seed, 2 + seed % 2, 2, 0), seed))


@pytest.mark.parametrize(
    "seed", [4000, 4003, *[pytest.param(s, marks=pytest.mark.slow) for s in range(4004, 4304)]]
)
def test_best_places_with_drafts_equal_enumeration(drafting: Tiny, seed: int) -> None:
    """The modules' caches lie and wait where the model's do."""
    compare_with_enumeration(with_tiers(drafting(seed, 2 + seed % 2, 2, 0), seed))


def compare_with_enumeration(instance: Instance) -> None:
    """Solve and enumerate; fail unless they agree."""
    expected = enumerate_best(instance, one_plan=True)
    try:
        result = search(instance, clock=Clock(120), gap=0.0)
    except NoFeasibleLayout:
        assert expected == 0.0
        return
    judged = evaluate(instance, result.layout)
    assert judged.feasible
    assert judged.requests_per_s == pytest.approx(expected, rel=1e-6)
    assert judged.usd_per_m_output_tokens is not None
    bound = result.certificate.bound_usd_per_m_output_tokens
    assert bound <= judged.usd_per_m_output_tokens * (1 + 1e-12)
    # the bound is not above what replicas with KV in places of their own serve either
    freely = judged.requests_per_s / enumerate_best(instance, one_plan=False)
    assert bound <= judged.usd_per_m_output_tokens * freely * (1 + 1e-6)


@pytest.mark.parametrize("in_hbm", [1, *[pytest.param(s, marks=pytest.mark.slow) for s in (2, 3)]])
def test_hbm_or_nothing_equals_enumeration(tiny: Tiny, in_hbm: int) -> None:
    """Without tiers, idle KV competes with sequences in flight for HBM."""
    instance = with_tiers(tiny(2011 + 2 * in_hbm, 2, 2, 0), in_hbm)
    scenario = instance.scenario.model_copy(update={"kv_tiers": ()})
    instance = replace(instance, scenario=scenario)
    expected = enumerate_best(instance, one_plan=True)
    result = search(instance, clock=Clock(120), gap=0.0)
    assert result.evaluation.requests_per_s == pytest.approx(expected, rel=1e-6)


def test_experts_may_lie_for_requests_that_find_their_kv(tiny: Tiny) -> None:
    """Placed for new requests alone, they serve a little less than the best layout."""
    instance = with_tiers(tiny(23, 2, 2, 4), 23)
    scenario = instance.scenario.model_copy(update={"kv_tiers": ()})
    compare_with_enumeration(replace(instance, scenario=scenario))


@pytest.mark.parametrize("usd_per_byte", [0.002, 0.02])
def test_rent_is_in_the_cost_and_in_the_bound(tiny: Tiny, usd_per_byte: float) -> None:
    """Whatever number of conversations waits in flash, a layout costs the bound or more."""
    instance = with_tiers(tiny(2000, 2, 2, 0), 2000, usd_per_byte)
    scenario = instance.scenario.model_copy(update={"kv_tiers": ("flash",)})
    instance = replace(instance, scenario=scenario)
    result = search(instance, clock=Clock(120), gap=0.02)
    bound = result.certificate.bound_usd_per_m_output_tokens
    found = result.evaluation.usd_per_m_output_tokens
    assert found is not None
    assert result.certificate.gap == pytest.approx(found / bound - 1)
    costs = []
    for mixed in (r for r in replicas(instance, 2) if r.role == "mixed"):
        for count in range(0, 600, 20):
            idle = KvShare(chip=mixed.chips[0], tier="flash", idle=True, sequences=count)
            judged = evaluate(
                instance,
                Layout(replicas=(mixed.model_copy(update={"kv": (*mixed.kv, idle)}),)),
            )
            if judged.feasible:
                assert judged.usd_per_m_output_tokens is not None
                costs.append(judged.usd_per_m_output_tokens)
    assert len(costs) > 20
    assert min(costs) >= bound * (1 - 1e-9)
    assert found <= min(costs) * 1.02


def test_a_stopped_search_says_so(tiny: Tiny) -> None:
    clock = Clock()
    clock.stop()
    with pytest.raises(NoLayoutInTime, match="before every place of KV"):
        search(with_tiers(tiny(2000, 2, 2, 0), 2000), clock=clock)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3000, 3016))
def test_experts_and_stages_with_idle_kv_keep_the_bound(tiny: Tiny, seed: int) -> None:
    """A bound above a layout's cost fails the search itself; the answer breaks no rule."""
    chips, layers, experts = [(3, 2, 3), (2, 3, 2), (4, 3, 0), (4, 2, 2)][seed % 4]
    instance = with_tiers(tiny(seed, chips, layers, experts), seed)
    try:
        result = search(instance, clock=Clock(60), gap=0.001)
    except NoFeasibleLayout:
        return
    assert evaluate(instance, result.layout).feasible
    assert result.certificate.gap < 0.1
