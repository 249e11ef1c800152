"""Each rule catches what it is for: a good layout is broken in one way at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import costmodel.rules
import solver.rules
from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.rules import rules
from solver.clock import Clock
from solver.search import search

Tiny = Callable[[int, int, int, int], Instance]


@pytest.fixture
def good(tiny: Tiny, uncut: None) -> tuple[Instance, dict[str, Any]]:
    """An instance and the plain data of a layout that breaks no rule."""
    instance = tiny(1000, 4, 3, 3)
    layout = search(instance, clock=Clock(60), gap=0.0).layout
    assert evaluate(instance, layout).violations == ()
    return instance, layout.model_dump(mode="json")


def broken_rules(instance: Instance, data: dict[str, Any]) -> set[str]:
    return {v.rule for v in evaluate(instance, Layout.model_validate(data)).violations}


def test_every_file_is_a_rule_with_two_sides() -> None:
    files = {path.stem for path in Path(costmodel.rules.__path__[0]).glob("*.py")} - {"__init__"}
    structure, priced = set(rules(structure=True)), set(rules(structure=False))
    assert "shape_matches" in structure
    assert "hbm_capacity" in priced
    assert structure | priced == files == set(solver.rules.rules())
    assert not structure & priced


def test_chip_twice(good: tuple[Instance, dict[str, Any]]) -> None:
    instance, data = good
    data["replicas"].append(data["replicas"][0])
    assert "chips_once" in broken_rules(instance, data)


def test_unknown_chip(good: tuple[Instance, dict[str, Any]]) -> None:
    instance, data = good
    data["replicas"][0]["stages"][0]["chips"][0] = "r9g9"
    assert "chips_usable" in broken_rules(instance, data)


def test_no_replica(good: tuple[Instance, dict[str, Any]]) -> None:
    instance, data = good
    data["replicas"] = []
    assert broken_rules(instance, data) == {"chips_usable"}


def test_layer_missing(good: tuple[Instance, dict[str, Any]]) -> None:
    instance, data = good
    data["replicas"][0]["stages"][-1]["layers"][1] -= 1
    assert "layers_covered" in broken_rules(instance, data)


def test_layer_beyond_the_model(good: tuple[Instance, dict[str, Any]]) -> None:
    instance, data = good
    data["replicas"][0]["stages"][-1]["layers"][1] = 10**6
    assert "layers_covered" in broken_rules(instance, data)


@pytest.mark.parametrize("change", ["missing", "twice", "strange", "short", "no map"])
def test_experts(good: tuple[Instance, dict[str, Any]], change: str) -> None:
    instance, data = good
    name = data["replicas"][0]["stages"][0]["expert_map"]
    layer = next(iter(data["expert_maps"][name]))
    row = data["expert_maps"][name][layer]
    if change == "missing":
        row[:] = [row[0] if e == row[-1] else e for e in row]
    elif change == "twice":
        slots = data["replicas"][0]["stages"][0]["slots_per_chip"]
        first = slots if isinstance(slots, int) else slots[0]
        if first > 1:
            row[1] = row[0]
        else:
            row[-1] = row[0]
    elif change == "strange":
        row[0] = 99
    elif change == "short":
        row.pop()
    else:
        del data["expert_maps"][name][layer]
    assert "experts_placed" in broken_rules(instance, data)


def test_sequences_do_not_add_up(good: tuple[Instance, dict[str, Any]]) -> None:
    instance, data = good
    data["replicas"][0]["shape"]["batch"] += 1
    assert "kv_placed" in broken_rules(instance, data)


@pytest.mark.parametrize("key", ["tp", "pp", "ep", "attention_dp"])
def test_shape_and_stages_differ(good: tuple[Instance, dict[str, Any]], key: str) -> None:
    instance, data = good
    data["replicas"][0]["shape"][key] += 1
    assert "shape_matches" in broken_rules(instance, data)


def test_too_many_sequences_for_hbm_and_targets(good: tuple[Instance, dict[str, Any]]) -> None:
    instance, data = good
    for replica in data["replicas"]:
        replica["kv"][0]["sequences"] += 10**6
        replica["shape"]["batch"] += 10**6
    assert {"hbm_capacity", "tpot_target"} <= broken_rules(instance, data)


def test_a_pool_is_missing(good: tuple[Instance, dict[str, Any]]) -> None:
    instance, data = good
    for replica in data["replicas"]:
        replica["role"] = "decode"
    assert "both_pools" in broken_rules(instance, data)


def test_rate_that_is_not_served(good: tuple[Instance, dict[str, Any]]) -> None:
    from dataclasses import replace

    instance, data = good
    scenario = instance.scenario.model_copy(update={"rate": 1e8})
    assert "rate_served" in broken_rules(replace(instance, scenario=scenario), data)


def test_reading_maps_as_arrays_changes_no_layout(good: tuple[Instance, dict[str, Any]]) -> None:
    _, data = good
    layout, read = Layout.model_validate(data), Layout.model_validate(data)
    name, table = next(iter(read.slot_tables.items()))
    for row, layer in enumerate(table.layers):
        assert tuple(table.experts[row].tolist()) == layout.expert_maps[name][layer]
    assert read == layout
    assert read != "a layout"
    swapped = {name: {layer: (*row[1:], row[0]) for layer, row in layout.expert_maps[name].items()}}
    changed = read.model_copy(update={"expert_maps": swapped})
    assert changed != layout
    again = changed.slot_tables[name]
    assert all(
        tuple(again.experts[row].tolist()) == swapped[name][layer]
        for row, layer in enumerate(again.layers)
    )
