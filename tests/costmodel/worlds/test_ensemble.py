"""The parameter sets that ship with the calibrated profile, and to which questions they belong."""

from dataclasses import replace

import numpy as np
import pytest

from costmodel.question.instance import resolve_instance
from costmodel.question.profile import load_profile
from costmodel.question.scenario import Scenario
from costmodel.worlds.ensemble import (
    DTYPES,
    FRACTIONS,
    has_worlds,
    quickest,
    shipped_worlds,
    slowest,
    values_of,
    worlds_of,
)

ASKED = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "slo": {"tpot": 0.02}}


def question(**more):
    workload = {"input_tokens": 500, "output_tokens": 100}
    return resolve_instance(Scenario.model_validate({**ASKED, "workload": workload, **more}))


def test_every_world_has_constants_of_every_chip_and_engine_of_the_profile():
    profile = load_profile("calibrated")
    cells = {("", chip) for chip in ("", *profile.chips)}
    for engine, own in profile.engines.items():
        cells |= {(engine, chip) for chip in ("", *own.chips)}
    for world in shipped_worlds():
        assert set(world) == cells


def test_the_shipped_constants_lie_among_those_of_the_worlds():
    profile = load_profile("calibrated").of_engine("vllm").for_chip("h100")
    found = np.array([world["vllm", "h100"] for world in shipped_worlds()])
    own = np.array(values_of(profile))
    assert (found.min(axis=0) <= own * 1.02).all()
    assert (own * 0.98 <= found.max(axis=0)).all()


@pytest.mark.parametrize("more", [{}, {"engine": "vllm"}, {"profile": "calibrated:sglang"}])
def test_worlds_are_of_the_engine_asked_for(more):
    instance = question(**more)
    engine = instance.profile.name.partition(":")[2]
    worlds = worlds_of(instance)
    assert len(worlds) == len(shipped_worlds())
    for world, values in zip(worlds, shipped_worlds(), strict=True):
        assert values_of(world.profile.for_chip("h100")) == values[engine, "h100"]
        assert world.profile.for_chip("h100").runtime_bytes > 0


def test_another_profile_has_none():
    assert worlds_of(question(profile="physics")) == ()
    instance = question()
    faster = instance.profile.default.model_copy(update={"hbm": 0.9})
    own = instance.profile.model_copy(update={"default": faster})
    assert not has_worlds(own)
    assert worlds_of(replace(instance, profile=own)) == ()


def test_an_even_load_stays_even_in_every_world():
    workload = {"input_tokens": 500, "output_tokens": 100, "expert_load": "uniform"}
    instance = question(model="gpt-oss-120b", workload=workload)
    worlds = worlds_of(instance)
    assert worlds
    assert {one.profile.for_chip("h100").routing_noise for one in worlds} == {0.0}


def test_the_quickest_has_the_best_of_each_constant_and_the_slowest_the_worst():
    worlds = worlds_of(question())
    every = np.array([values_of(one.profile.for_chip("h100")) for one in worlds])
    rates = len(DTYPES) + len(FRACTIONS)
    best = np.array(values_of(quickest(worlds).profile.for_chip("h100")))
    worst = np.array(values_of(slowest(worlds).profile.for_chip("h100")))
    np.testing.assert_array_equal(best[:rates], every.max(axis=0)[:rates])
    np.testing.assert_array_equal(best[rates:], every.min(axis=0)[rates:])
    np.testing.assert_array_equal(worst[:rates], every.min(axis=0)[:rates])
    np.testing.assert_array_equal(worst[rates:], every.max(axis=0)[rates:])
