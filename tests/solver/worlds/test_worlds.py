"""One layout for several parameter sets: against enumeration, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.question.instance import Instance
from costmodel.worlds.across import costs_of
from costmodel.worlds.ensemble import place_of, quickest, slowest
from solver.clock import Clock
from solver.verify import usd_per_m_output
from solver.worlds.search import WorldsSearch
from tests.solver.worlds.enumerated_worlds import least_at
from topology.errors import NoFeasibleLayout

Tiny = Callable[[int, int, int, int], Instance]
#: worlds of a tiny question, and the confidence that five of six of them are
NUMBER, CONFIDENCE = 6, 0.8


def world(instance: Instance, factor: float, unlike: np.random.Generator | None = None) -> Instance:
    """The question with every time so many times as long, or each constant by a factor of its own near that."""
    own = instance.profile.default

    def by() -> float:
        return factor * (1.0 if unlike is None else float(unlike.uniform(0.8, 1.25)))

    moved = own.model_copy(
        update={
            "compute": {"bf16": min(1.0, 0.8 / by())},
            "hbm": min(1.0, own.hbm / by()),
            "all_reduce": own.all_reduce / by(),
            "layer_overhead_s": own.layer_overhead_s * by(),
        }
    )
    return replace(instance, profile=instance.profile.model_copy(update={"default": moved}))


def answer(instance: Instance, worlds: list[Instance]) -> tuple[float, float] | None:
    """Cost at the confidence and its bound, in dollars per hour and request per second; ``None``: nothing fits."""
    try:
        found = WorldsSearch(instance, worlds, CONFIDENCE, clock=Clock(120), gap=0.0, seed=0).run()
    except NoFeasibleLayout:
        return None
    assert found.worlds is not None
    assert found.worlds.usd_per_m_output_tokens is not None
    assert evaluate(instance, found.layout).feasible
    again = costs_of(worlds, found.layout).at(CONFIDENCE)
    assert found.worlds.usd_per_m_output_tokens == again
    scale = usd_per_m_output(instance)
    return again / scale, found.certificate.bound_usd_per_m_output_tokens / scale


@pytest.mark.parametrize("chips", [2, 3])
@pytest.mark.parametrize("alike", [True, False])
def test_the_answer_is_the_layout_that_enumeration_finds(
    tiny: Tiny, chips: int, alike: bool
) -> None:
    served = 0
    for seed in range(1000, 1006 if chips == 2 else 1003):
        instance = tiny(seed, chips, 5 - chips, 0)
        random = None if alike else np.random.default_rng(seed)
        worlds = [world(instance, factor, random) for factor in np.linspace(0.85, 1.35, NUMBER)]
        least = least_at(instance, worlds, place_of(CONFIDENCE, NUMBER) + 1)
        found = answer(instance, worlds)
        if found is None:
            assert least == float("inf")
            continue
        served += 1
        cost, bound = found
        assert cost == pytest.approx(least, rel=1e-6)
        assert bound <= least * (1 + 1e-9)
        if alike:
            assert bound == pytest.approx(least, rel=1e-6)
    assert served >= 2


@pytest.mark.parametrize("seed", [1001, 1003, 1005])
def test_worlds_that_decide_are_bounded_one_by_one_where_the_best_of_them_leaves_a_gap(
    tiny: Tiny, seed: int
) -> None:
    """Of twelve unlike worlds six decide at even odds; bounded two and two, they left 4 to 6 %."""
    instance, random = tiny(seed, 3, 3, 0), np.random.default_rng(seed)
    worlds = [world(instance, factor, random) for factor in np.linspace(0.7, 1.6, 12)]
    found = WorldsSearch(instance, worlds, 0.5, clock=Clock(120), gap=0.0, seed=0).run()
    assert found.status == "optimal"
    assert found.certificate.gap == pytest.approx(0.0, abs=1e-9)


def test_the_quickest_and_the_slowest_enclose_every_world(tiny: Tiny) -> None:
    instance = tiny(1001, 2, 3, 0)
    random = np.random.default_rng(3)
    worlds = [world(instance, factor, random) for factor in (0.9, 1.0, 1.2)]
    layout = WorldsSearch(instance, worlds, 0.5, clock=Clock(60), gap=0.0, seed=0).run().layout
    times = [evaluate(one, layout).tpot_s or 0.0 for one in worlds]
    least, most = (evaluate(of(worlds), layout).tpot_s or 0.0 for of in (quickest, slowest))
    assert least <= min(times)
    assert max(times) <= most


def test_a_clock_that_is_over_gives_an_answer_as_soon_as_it_has_a_bound(tiny: Tiny) -> None:
    instance = tiny(1001, 2, 3, 0)
    clock = Clock(60)
    search = WorldsSearch(instance, [world(instance, 1.1)] * 3, 0.5, clock=clock, gap=0.0, seed=0)
    assert clock.kept() is None
    search.look(instance, required=True)
    assert search.best is not None
    assert clock.kept() is None
    search.run()
    kept = clock.kept()
    assert kept.worlds.confidence == 0.5
    assert kept.certificate.bound_usd_per_m_output_tokens > 0
    clock.stop()
    late = WorldsSearch(instance, search.worlds, 0.5, clock=clock, gap=0.0, seed=0).run()
    cost = kept.certificate.bound_usd_per_m_output_tokens * (1 + kept.certificate.gap)
    # what bounds all layouts before any is placed
    assert 0 < late.certificate.bound_usd_per_m_output_tokens <= cost * (1 + 1e-9)


def test_place_is_the_least_that_covers_the_share() -> None:
    assert [place_of(0.9, 24), place_of(0.5, 24), place_of(0.95, 20), place_of(0.8, 5)] == [
        21, 11, 18, 3,
    ]  # fmt: skip
