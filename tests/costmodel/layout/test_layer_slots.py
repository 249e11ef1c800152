"""Layers with unlike numbers of expert slots: read, checked, priced and refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.experts.moe_load import expert_shares
from costmodel.layout.layout import Layout
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.engine_files import EngineName
from costmodel.question.instance import Instance

Tiny = Callable[[int, int, int, int], Instance]


@pytest.fixture
def unlike(tiny: Tiny) -> tuple[Instance, dict[str, Any]]:
    """Six experts on three chips; the last layer has a copy of expert 0 on the middle chip."""
    instance = tiny(1000, 3, 3, 6)
    layout = plain_layout(instance, "mixed", tp=1, attention_dp=3, batch=3)
    data = layout.model_dump(mode="json")
    stage = data["replicas"][0]["stages"][0]
    stage["layer_slots"] = {"2": [2, 3, 2]}
    data["expert_maps"]["even"]["2"] = [0, 1, 2, 3, 0, 4, 5]
    return instance, data


def price(instance: Instance, data: dict[str, Any]) -> Any:
    return evaluate(instance, Layout.model_validate(data)).priced.replicas[0]


def placement_faults(instance: Instance, data: dict[str, Any]) -> list[str]:
    found = evaluate(instance, Layout.model_validate(data)).violations
    return [f"{v.place}: {v.message}" for v in found if v.rule == "experts_placed"]


def test_like_layers_named_one_by_one_change_nothing(
    unlike: tuple[Instance, dict[str, Any]],
) -> None:
    instance, data = unlike
    stage, maps = data["replicas"][0]["stages"][0], data["expert_maps"]["even"]
    maps["2"] = maps["1"]
    stage["layer_slots"] = None
    plain = evaluate(instance, Layout.model_validate(data))
    stage["layer_slots"] = {"1": 2, "2": [2, 2, 2]}
    assert Layout.model_validate(data).replicas[0].stages[0].unlike == ()
    named = evaluate(instance, Layout.model_validate(data))
    assert named.as_dict() == plain.as_dict()
    assert named.violations == plain.violations


def test_a_layout_with_unlike_layers_survives_its_file(
    unlike: tuple[Instance, dict[str, Any]],
) -> None:
    _, data = unlike
    layout = Layout.model_validate(data)
    assert Layout.model_validate(json.loads(layout.model_dump_json())) == layout
    stage = layout.replicas[0].stages[0]
    assert stage.unlike == (2,)
    assert [stage.slots(layer) for layer in range(3)] == [(2, 2, 2), (2, 2, 2), (2, 3, 2)]


def test_each_chip_holds_the_slots_of_all_its_layers(
    unlike: tuple[Instance, dict[str, Any]],
) -> None:
    instance, data = unlike
    assert placement_faults(instance, data) == []
    moe, layers = instance.operations.moe, len(instance.operations.moe_layers)
    assert moe is not None
    held = price(instance, data).stages[0].memory["experts"] / moe.expert_bytes
    assert held.tolist() == pytest.approx([2 * layers, 2 * layers + 1, 2 * layers])


def test_each_layer_lasts_as_long_as_its_own_busiest_chip(
    unlike: tuple[Instance, dict[str, Any]],
) -> None:
    instance, data = unlike
    layout = Layout.model_validate(data)
    stage, maps = layout.replicas[0].stages[0], layout.expert_maps["even"]
    busiest = [
        expert_shares(
            instance.expert_loads[row : row + 1], np.array([maps[layer]]), stage.slots(layer), 1, 1
        ).load.max()
        for row, layer in enumerate(instance.operations.moe_layers)
    ]
    assert price(instance, data).stages[0].imbalance == pytest.approx(3 * np.mean(busiest))


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ({"2": [2, 3]}, "stages[0]: layer_slots[2] for 2 of 3 chips"),
        ({"2": [-1, 5, 3]}, "stages[0]: layer_slots[2] is -1; expected 0 or more slots"),
        ({"2": -2}, "stages[0]: layer_slots[2] is -2; expected 0 or more slots"),
        ({"2": [2, 2, 2]}, "stages[0] layer 2: 7 slots in the map, 6 on the chips"),
        ({"2": [3, 2, 2], "7": 2}, "layer_slots names layer 7; the stage has layers 0-2"),
        (None, "stages[0] layer 2: 7 slots in the map, 6 on the chips"),
    ],
)
def test_slots_that_do_not_fit_are_named(
    unlike: tuple[Instance, dict[str, Any]], slots: object, message: str
) -> None:
    instance, data = unlike
    data["replicas"][0]["stages"][0]["layer_slots"] = slots
    (found,) = placement_faults(instance, data)
    assert found.endswith(message)


def test_an_expert_twice_on_a_chip_of_an_unlike_layer(
    unlike: tuple[Instance, dict[str, Any]],
) -> None:
    instance, data = unlike
    data["expert_maps"]["even"]["2"] = [0, 1, 2, 3, 2, 4, 5]
    (found,) = placement_faults(instance, data)
    assert "layer 2: chip" in found
    assert found.endswith("holds an expert twice")


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "vllm"])
def test_no_engine_runs_unlike_layers(
    unlike: tuple[Instance, dict[str, Any]], engine: EngineName
) -> None:
    instance, data = unlike
    scenario = instance.scenario.model_copy(update={"engine": engine})
    found = evaluate(replace(instance, scenario=scenario), Layout.model_validate(data)).violations
    assert any("unlike numbers of expert slots" in v.message for v in found)
