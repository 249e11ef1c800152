"""Beside a failed chip each stage of a replica stands on a quick set of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo, Workload
from solver.clock import Clock
from solver.fleet.asked import fleet_of
from solver.fleet.items import Item
from solver.named_chips import NamedChips
from solver.place.assemble import ReplicaSource, _chips, _needs
from solver.shapes.pools import pool_classes

#: seven stages of four chips
SHAPE = {"role": 0, "tp": 1, "attention_dp": 4, "pp": 7, "slots": 56}
ITEM = Item(0, 0, 0, 1, 28, 10.0)


def asked(*failed: str) -> Instance:
    return resolve_instance(
        Scenario(
            model="deepseek-v2",
            cluster="tpu-v4",
            failed=failed,
            workload=Workload(input_tokens=2000, output_tokens=256),
            slo=Slo(ttft=5.0, tpot=0.05),
        )
    )


@pytest.fixture(scope="module")
def hurt() -> Instance:
    return asked("r0g3")


def slowest_s(instance: Instance, stages: Any) -> float:
    """Seconds per byte of the slowest exchange within a stage."""
    fabric, chip = instance.cluster.domains[0].fabric, instance.cluster.chip
    return max(
        fabric.exchange([chip(one).position for one in stage]).s_per_byte for stage in stages
    )


def quickest_s(instance: Instance) -> float:
    domain = instance.cluster.domains[0]
    places = [placed.position for placed in domain.usable]
    return min(one.exchange_s_per_byte for one in domain.fabric.blocks(places, 4, 400))


def test_in_a_fleet_each_stage_has_a_set_of_its_own(hurt: Instance) -> None:
    shape = SimpleNamespace(shape=SHAPE)
    placed = cast(ReplicaSource, SimpleNamespace(of=lambda item: shape, clock=Clock(), seed=0))
    assert [need.chips for need in _needs(hurt, ITEM, 0, placed, 0)] == [4] * 7
    assert [need.chips for need in _needs(asked(), ITEM, 0, placed, 0)] == [28]
    classes = pool_classes(hurt.cluster)
    fleet = fleet_of([(ITEM, classes[0].pools)] * 2, classes)
    chosen = _chips(hurt, fleet, [0, 1], placed)
    stages = [chips[at : at + 4] for (chips,) in chosen.values() for at in range(0, len(chips), 4)]
    assert len({chip for stage in stages for chip in stage}) == 56
    assert slowest_s(hurt, stages) == pytest.approx(quickest_s(hurt))


def test_a_fleet_of_fewer_chips_leaves_out_what_does_not_fit_on_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replica on fifteen chips of each pool has no place where fourteen are looked at: this was an internal error."""
    asked = Scenario(model="llama-3.1-8b", cluster="trn2@4", workload="chat", pay="used")
    search = NamedChips(resolve_instance(asked), Clock(), 0.01, 0, None)
    mixed = 2
    wide, small = Item(0, mixed, 0, 2, 15, 30.0), Item(1, mixed, 0, 2, 8, 16.0)
    monkeypatch.setattr(search, "hoped", lambda: [wide, small])
    fleet = search._fleet_on(0.9)
    assert fleet is not None
    assert {item for item, _ in fleet.stands} == {small}
    monkeypatch.setattr(search, "hoped", lambda: [wide])
    assert search._fleet_on(0.9) is None
