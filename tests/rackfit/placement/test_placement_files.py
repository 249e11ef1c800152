"""Files of placements pass the checks that engines make when they load them; wrong ones never become a file."""

import json

import pytest
import yaml

from costmodel.experts.expert_load import skewed_load
from rackfit.exporters.placements import sglang, trtllm, vllm
from rackfit.exporters.placements.table import PlacementTable
from tests.rackfit.exporters.loaders import check_sglang, check_trtllm, check_vllm_ascend
from topology.errors import InstanceError

LOADS = skewed_load(4, 32, seed=0) * 1000


def table_of(width=5, chips=8, dense=3):
    from solver.experts import place_layers

    found = place_layers(LOADS, [width] * chips)
    return PlacementTable(
        found.physical_to_logical, 32, (width,) * chips, tuple(range(dense, dense + 4)), dense + 4
    )


def test_sglang_file_passes_its_loading_checks_and_wrong_ones_do_not():
    arguments = {"num_layers": 7, "num_experts": 32, "spare": 8, "chips": 8}
    text = sglang.render(table_of())
    assert check_sglang(text, **arguments) == []
    data = json.loads(text)["physical_to_logical_map"]
    wrong = {
        "rows": data[3:],
        "duplicate": [*data[:6], [*data[6][:1] * 2, *data[6][2:]]],
        "missing": [*data[:6], [0] * 40],
        "range": [*data[:6], [99, *data[6][1:]]],
        "length": [*data[:6], data[6][:-1]],
    }
    for rows in wrong.values():
        assert check_sglang(json.dumps({"physical_to_logical_map": rows}), **arguments)
    assert check_sglang(json.dumps({"physical_to_logical_map": data, "seed": 1}), **arguments)
    assert check_sglang("{", **arguments)


def test_trtllm_file_passes_its_loading_checks_and_wrong_ones_do_not():
    arguments = {"layer_ids": [3, 4, 5, 6], "num_experts": 32, "chips": 8}
    text = trtllm.render(table_of())
    assert check_trtllm(text, **arguments) == []
    data = yaml.safe_load(text)
    rows = data["initial_global_assignments"]
    for change in (
        {"num_slots": 41},
        {"layer_updates_per_iter": 1},
        {"ep_size": 8},
        {"initial_global_assignments": {layer: rows[layer] for layer in (3, 4, 5)}},
        {"initial_global_assignments": {**rows, 3: [0] * 40}},
        {"initial_global_assignments": {**rows, 3: [rows[3][1], *rows[3][1:]]}},
    ):
        assert check_trtllm(yaml.safe_dump({**data, **change}), **arguments)


def test_vllm_ascend_file_passes_its_loading_checks_and_wrong_ones_do_not():
    arguments = {"num_layers": 4, "num_experts": 32, "chips": 8}
    text = vllm.render(table_of())
    assert check_vllm_ascend(text, **arguments) == []
    for change in (
        lambda data: data.update(moe_layer_count=5),
        lambda data: data["layer_list"].pop(),
        lambda data: data["layer_list"][0].update(layer_id=1),
        lambda data: data["layer_list"][0]["device_list"].pop(),
        lambda data: data["layer_list"][0]["device_list"][0]["device_expert"].pop(),
        lambda data: data["layer_list"][0]["device_list"][0].update(device_expert=[0] * 5),
        lambda data: data.pop("layer_list"),
    ):
        data = json.loads(text)
        change(data)
        assert check_vllm_ascend(json.dumps(data), **arguments)
    assert "num_redundant_experts" in vllm.hint(table_of())


def test_a_wrong_placement_never_becomes_a_file():
    good = table_of()
    for spoil in ([0] * 40, [1, *good.physical_to_logical[0][1:].tolist()]):
        rows = good.physical_to_logical.copy()
        rows[0] = spoil
        with pytest.raises(InstanceError):
            PlacementTable(rows, 32, good.slots_per_chip, good.layer_ids, good.num_layers)
    with pytest.raises(InstanceError):
        PlacementTable(good.physical_to_logical, 32, good.slots_per_chip, (0, 1), 4)
