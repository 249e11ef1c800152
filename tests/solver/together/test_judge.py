"""The judge of several models: chips that two models take, and links that only all together overload."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rackfit
from costmodel.replica.fleet import NOTHING, Crossings, PricedLayout
from costmodel.together.judge import headroom_of, judge
from costmodel.together.question import Models, resolve_together


@pytest.fixture(scope="module")
def models() -> Models:
    asked = rackfit.load_together("llama-8b-and-70b-h200")
    return resolve_together(asked.model_copy(update={"cluster": "hgx-h200@2"}))


def test_chips_of_two_models_break_rules_of_both(models: Models) -> None:
    small = rackfit.solve(models.instances[0], beside=False).layout
    large = rackfit.solve(models.instances[1], beside=False).layout
    judged = judge(models, [small, large])
    rules = {(one.rule, one.place) for one in judged.violations}
    assert ("chips_once", "r0g0") in rules
    for name in models.names:
        assert any(rule == "chips_usable" and name in place for rule, place in rules)
    assert judged.headroom == 0


def priced(models: Models, capacity: float, share: float, passes: float = 0.0) -> PricedLayout:
    """A layout whose KV fills a share of every domain's uplinks at capacity, its passes another."""
    links = models.instances[0].cluster.uplinks
    none = np.zeros_like(links.unit)
    sent = Crossings(links.domain * passes, links.domain * passes, none, none)
    full = links.domain * (passes + share)
    return replace(
        NOTHING,
        requests_per_s=capacity,
        passes=sent,
        crossings=Crossings(full, full, none, none),
    )


def test_links_are_shared_by_all_models(models: Models) -> None:
    small, large = models.rates
    links = models.instances[0].cluster.uplinks
    idle = priced(models, 2 * large, 0.0)
    assert headroom_of(
        links, models.rates, [priced(models, 2 * small, 0.6), idle]
    ) == pytest.approx(2.0)
    both = [priced(models, 2 * small, 0.6), priced(models, 2 * large, 0.6)]
    assert headroom_of(links, models.rates, both) == pytest.approx(1 / 0.6)
    both[1] = priced(models, 2 * large, 0.6, passes=0.7)
    assert headroom_of(links, models.rates, both) == pytest.approx(0.3 / 0.6)
    both[0] = priced(models, 2 * small, 0.1, passes=0.4)
    assert headroom_of(links, models.rates, both) == 0.0


def test_pools_that_are_not_told_apart_are_shared_one_model_after_another() -> None:
    """Eighty nodes: the fleet model fills them by patterns, and the bound is that of each model alone."""
    asked = rackfit.load_together("llama-8b-and-70b-h200")
    served = [
        one.model_copy(update={"rate": rate})
        for one, rate in zip(asked.models, (500, 100), strict=True)
    ]
    update = {"cluster": "hgx-h200@80", "models": tuple(served)}
    found = rackfit.solve_together(asked.model_copy(update=update), gap=0.02)
    assert not found.judged.violations
    assert found.judged.headroom >= 1
    used = [chip for layout in found.layouts for one in layout.replicas for chip in one.chips]
    assert len(used) == len(set(used)) == found.judged.chips_used
    alone = sum(found.bound_alone_usd_per_hour(at) for at in range(2))
    assert found.bound == pytest.approx(alone)
    assert found.judged.usd_per_hour <= alone * 1.05
