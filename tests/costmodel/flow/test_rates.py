"""Rates of machines from the cost model: where one machine holds everything, they are the evaluator's."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from costmodel.evaluate import evaluate
from costmodel.flow.question import FlowQuestion, load_flow
from costmodel.flow.rates import priced
from costmodel.layout.layout import KvShare, Layout, Replica, Shape, Stage
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from topology.catalogue import data_dir, read_data
from topology.errors import InstanceError

MODEL = "llama-3.1-8b"


def asked(**machine: Any) -> FlowQuestion:
    return FlowQuestion.model_validate(
        {
            "name": "x",
            "model": {"name": "m", "layers": 2, "activation_bytes": 1},
            "machines": {"a": {"tokens_per_s": [1, 1], **machine}},
            "nodes": ["a"],
            "links": {"between": 1, "source": 1e9, "sink": 1e9},
        }
    )


@pytest.mark.parametrize(("cluster", "chip"), [("hgx-h100", "h100"), ("hgx-a100", "a100")])
def test_a_machine_with_all_layers_has_the_rate_of_the_evaluated_replica(
    cluster: str, chip: str
) -> None:
    question = priced(asked(chip=chip), MODEL, "chat")
    assert question.model.layers == 32
    assert question.model.activation_bytes == 4096 * 2
    scenario = Scenario(model=MODEL, cluster=cluster, workload="chat")
    instance = resolve_instance(scenario)
    name = instance.cluster.chips[0].id

    def layout(batch: int) -> Layout:
        shape = Shape(tp=1, ep=1, pp=1, attention_dp=1, batch=batch)
        stage = Stage(layers=(0, 31), chips=(name,))
        kv = (KvShare(chip=name, sequences=batch),)
        return Layout(replicas=(Replica(role="mixed", shape=shape, stages=(stage,), kv=kv),))

    def fits(batch: int) -> bool:
        found = evaluate(instance, layout(batch)).violations
        return not any(one.rule == "hbm_capacity" for one in found)

    low, high = 1, 4097
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    found = evaluate(instance, layout(low))
    assert found.requests_per_s is not None
    work = instance.workload
    tokens = work.input_tokens + work.output_tokens
    assert question.rate(0, 32) == pytest.approx(found.requests_per_s * tokens, rel=1e-6)


def test_more_layers_are_slower_and_the_list_ends_where_memory_does() -> None:
    question = priced(load_flow("helix-heterogeneous42"), "llama-3.1-70b", "chat")
    assert question.model.layers == 80
    for machine in question.machines.values():
        rates = machine.tokens_per_s
        assert all(one > other for one, other in pairwise(rates))
    most = {kind: len(machine.tokens_per_s) for kind, machine in question.machines.items()}
    # one layer is 1.7 GB: an A100 of 40 GiB holds at most 25, a T4 of 15 GiB at most 9
    assert 15 <= most["A100"] <= 25
    assert 4 <= most["T4"] <= 9
    assert most["T4"] * 4 <= most["T4x4"] <= 37
    assert question.nodes == load_flow("helix-heterogeneous42").nodes


@pytest.mark.parametrize(
    ("machine", "model", "said"),
    [
        ({}, MODEL, "rates of a need a chip"),
        ({"chip": "h100"}, "deepseek-v3", "all alike and dense"),
        ({"chip": "h100"}, "nothing", "unknown name"),
    ],
)
def test_what_has_no_rates_is_refused(machine: dict[str, Any], model: str, said: str) -> None:
    with pytest.raises(InstanceError, match=said):
        priced(asked(**machine), model, "chat")


def test_a_machine_too_small_for_a_layer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    chip = read_data(data_dir("chips") / "t4.yaml")
    path.write_text(yaml.safe_dump({**chip, "name": "small", "hbm_bytes": "100 MB"}))
    with pytest.raises(InstanceError, match="a holds no layer of llama"):
        priced(asked(chip=str(path)), MODEL, "chat")


def test_a_model_of_more_layers_than_a_flow_has_is_refused(tmp_path: Path) -> None:
    config = read_data(data_dir("models") / "llama-3.1-8b.json") | {"num_hidden_layers": 1001}
    path = tmp_path / "deep.json"
    path.write_text(json.dumps(config))
    with pytest.raises(InstanceError, match="1,001 layers; a flow has 1,000 at most"):
        priced(asked(chip="h100"), str(path), "chat")
