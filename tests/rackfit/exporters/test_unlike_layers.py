"""Layers with unlike numbers of slots: written where the format can say so, refused elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance, instance_from_description, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.cli.next_step import next_target
from rackfit.exporters.export import export_layout
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer
from tests.rackfit.exporters.loaders import check_vllm_ascend
from topology.errors import ExportError

LAYER = 5


@pytest.fixture(scope="module")
def moe() -> Instance:
    """48 layers of 128 experts."""
    return resolve_instance(
        Scenario(
            model="qwen3-30b-a3b",
            cluster="hgx-h100",
            workload=Workload(input_tokens=1000, output_tokens=200),
        )
    )


def unlike(instance: Instance, slots: tuple[int, ...]) -> Layout:
    """Experts on four chips, 32 each; one layer with ``slots``, the spare ones copies from the next chip."""
    server = FoundServer("x", "mixed", tp=1, attention_dp=4, pp=1, batch=40)
    layout = build_layout(instance, [server]).layout
    (replica,) = layout.replicas
    (stage,) = replica.stages
    assert stage.expert_map is not None
    maps = dict(layout.expert_maps[stage.expert_map])
    row = maps[LAYER]
    around = (*row, *row)
    maps[LAYER] = tuple(
        expert for chip, count in enumerate(slots) for expert in around[chip * 32 :][:count]
    )
    stage = stage.model_copy(update={"layer_slots": {LAYER: slots}})
    replica = replica.model_copy(update={"stages": (stage,)})
    return Layout(replicas=(replica,), expert_maps={stage.expert_map or "": maps})


ROW = (33, 33, 33, 33)


@pytest.mark.parametrize("target", ["sglang", "trtllm", "vllm", "dynamo"])
def test_one_number_for_all_layers_refuses_and_pads(moe: Instance, target: str) -> None:
    layout = unlike(moe, ROW)
    assert evaluate(moe, layout).feasible
    with pytest.raises(ExportError, match="stage 0 layer 5: 128 to 132 expert slots by layer"):
        export_layout(moe, layout, target)
    exported = export_layout(moe, layout, target, allow_approximate=True)
    (stage,) = exported.layout.replicas[0].stages
    assert stage.unlike == ()
    assert stage.slots() == ROW
    assert exported.deployed.feasible


def test_ascend_loads_unlike_layers(moe: Instance) -> None:
    layout = unlike(moe, ROW)
    exported = export_layout(moe, layout, "vllm-ascend")
    assert exported.layout == layout
    (name,) = [name for name in exported.files if name.endswith(".json")]
    text = exported.files[name]
    assert check_vllm_ascend(text, num_layers=48, num_experts=128, chips=4) == []
    rooms = [
        [len(device["device_expert"]) for device in layer["device_list"]]
        for layer in json.loads(text)["layer_list"]
    ]
    assert rooms == [[33] * 4 if layer == LAYER else [32] * 4 for layer in range(48)]


def test_ascend_wants_even_chips_in_a_layer(moe: Instance) -> None:
    layout = unlike(moe, (32, 33, 32, 32))
    with pytest.raises(ExportError, match="stage 0 layer 5: 32 to 33 expert slots per chip"):
        export_layout(moe, layout, "vllm-ascend")
    exported = export_layout(moe, layout, "vllm-ascend", allow_approximate=True)
    (stage,) = exported.layout.replicas[0].stages
    assert stage.slots() == (32,) * 4
    assert stage.slots(LAYER) == ROW


def test_the_layout_document_holds_unlike_layers(moe: Instance) -> None:
    layout = unlike(moe, (32, 33, 32, 32))
    exported = export_layout(moe, layout, "json")
    document = json.loads(exported.files["layout.json"])
    assert Layout.model_validate(document["layout"]) == layout
    again = evaluate(
        instance_from_description(document["instance"], "layout.json"),
        Layout.model_validate(document["layout"]),
    )
    assert again.as_dict() == evaluate(moe, layout).as_dict()


def test_ascend_loads_no_maps_in_a_pipeline(moe: Instance) -> None:
    """Each stage would load the maps of the first one's layers."""
    server = FoundServer("x", "mixed", tp=1, attention_dp=2, pp=2, batch=40)
    in_order = build_layout(moe, [server]).layout
    exported = export_layout(moe, in_order, "vllm-ascend")
    assert not [name for name in exported.files if name.startswith("experts-")]

    (name,) = in_order.expert_maps
    placed = in_order.model_copy(
        update={
            "expert_maps": {name: {k: row[::-1] for k, row in in_order.expert_maps[name].items()}}
        }
    )
    assert evaluate(moe, placed).feasible
    with pytest.raises(ExportError, match="2 stages; each would load the expert maps of the first"):
        export_layout(moe, placed, "vllm-ascend")
    exported = export_layout(moe, placed, "vllm-ascend", allow_approximate=True)
    assert not [name for name in exported.files if name.startswith("experts-")]


def test_solve_names_a_target_that_can_say_it(moe: Instance) -> None:
    layout = unlike(moe, ROW)
    assert next_target(moe, layout) == ("json", "")
    (replica,) = layout.replicas
    stage = replica.stages[0].model_copy(update={"layer_slots": None})
    even = layout.model_copy(
        update={"replicas": (replica.model_copy(update={"stages": (stage,)}),)}
    )
    assert next_target(moe, even)[0] == "sglang"
    asked = replace(moe, scenario=moe.scenario.model_copy(update={"engine": "trtllm"}))
    assert next_target(asked, even) == ("trtllm", "")
