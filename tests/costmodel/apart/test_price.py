"""A replica with experts apart: its time by the formula, its links by the graph, its bytes, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from costmodel.apart.kinds import half_kinds
from costmodel.apart.times import KindTimes
from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance, Scenario, resolve_instance
from costmodel.replay.fleet import standing
from costmodel.replay.gaps import Gaps
from costmodel.replay.job import Habits
from rackfit.exporters.export import export_layout
from tests.costmodel.apart.by_hand import lying
from topology import load_cluster
from topology.collectives.between import between
from topology.errors import ExportError, InstanceError

ATTENTION, EXPERTS = [f"r0g{n}" for n in range(4)], [f"r0g{n}" for n in range(4, 6)]


@pytest.fixture(scope="module")
def question() -> Instance:
    asked: dict[str, Any] = {
        "model": "gpt-oss-20b",
        "cluster": "hgx-h100",
        "workload": {"input_tokens": 1000, "output_tokens": 200},
        "slo": {"tpot": 1.0, "ttft": 5.0},
    }
    return resolve_instance(Scenario.model_validate(asked))


def layer(attention: float, dispatch: float, experts: float, combine: float) -> KindTimes:
    there = (np.array([[value]]) for value in (experts, dispatch, combine))
    return KindTimes(np.array([attention]), *there, 10.0, ({}, {}))


@pytest.mark.parametrize(
    ("times", "batches", "expected"),
    [
        ((3.0, 1.0, 3.0, 1.0), 1, 80.0),  # nothing hides
        ((3.0, 1.0, 3.0, 1.0), 2, 80.0),  # two microbatches do not fill the line
        ((3.0, 1.0, 3.0, 1.0), 3, 90.0),  # three do: 3 >= 2 (1 + 1/3)
        ((2.0, 3.0, 2.0, 1.0), 4, 120.0),  # the way there sets the pace
    ],
)
def test_a_layer_takes_the_line_or_its_slowest_machine(
    times: tuple[float, float, float, float], batches: int, expected: float
) -> None:
    found = layer(*times).period_s(np.array([float(batches)]))
    assert found.tolist() == [expected]


def test_both_halves_have_what_the_whole_has(question: Instance) -> None:
    for kind, half in zip(question.operations.kinds, half_kinds(question.operations), strict=True):
        assert half.experts is not None
        assert half.attention.num_kernels + half.experts.num_kernels == kind.num_kernels
        assert (half.attention.moe, half.experts.moe) == (None, kind.moe)
        parts = dict(half.attention.quantised), dict(half.experts.quantised)
        for dtype, count in kind.quantised:
            assert parts[0].get(dtype, 0) + parts[1].get(dtype, 0) == count


def test_links_inside_a_domain_are_those_of_the_graph() -> None:
    cluster, copies = load_cluster("hgx-h100"), 2
    found = between(cluster, ATTENTION, EXPERTS, 4.0)
    each = 1e6
    messages = [(a, e, each * copies / len(EXPERTS)) for a in ATTENTION for e in EXPERTS]
    walked = cluster.transfers(messages).time_s
    received = each * len(ATTENTION) * copies / len(EXPERTS)
    slowest = max(found.out_s_per_byte * each, found.into_s_per_byte * received)
    assert slowest == pytest.approx(walked, rel=1e-6)
    assert found.latency_s == cluster.rate("send", ("r0g0", "r0g4")).latency_s


def test_nics_between_domains_are_those_of_the_graph() -> None:
    cluster = load_cluster("hgx-h100@3")
    targets = [f"r{d}g{n}" for d in (1, 2) for n in range(4)]
    found = between(cluster, ATTENTION, targets, 4.0)
    each, reach = 1e6, 1 - 0.5**4
    messages = [(a, e, each * reach / 4) for a in ATTENTION for e in targets]
    walked = cluster.transfers(messages).time_s
    whole = each * len(ATTENTION)
    slowest = max(found.out_s_per_byte * each, found.through_s_per_byte * whole)
    assert slowest == pytest.approx(walked, rel=1e-6)
    assert sum(found.crossing.values()) == pytest.approx(sum(found.arriving.values()))


def test_more_microbatches_hide_the_exchange_and_never_quicken_a_machine(
    question: Instance,
) -> None:
    periods = []
    for batches in (1, 2, 3, 4):
        layout = lying(question, ATTENTION, EXPERTS, batches=batches, per_rank=240)
        (price,) = evaluate(question, layout).priced.replicas
        busy = [sum(stage.parts.values()) for stage in price.stages]
        overhead = question.profile.for_chip("h100").step_overhead_s
        # attention's chips are busy for no longer than the round, and experts beside them
        assert busy[0] + overhead <= float(price.service.tpot_s) * (1 + 1e-9)
        periods.append(float(price.service.tpot_s))
    assert min(periods) < periods[0]


def test_each_group_holds_its_own_bytes(question: Instance) -> None:
    layout = lying(question, ATTENTION, EXPERTS, batches=2, per_rank=16)
    (price,) = evaluate(question, layout).priced.replicas
    attention, experts = (stage.memory for stage in price.stages)
    spec, moe = question.model, question.operations.moe
    assert moe is not None
    layers = len(question.operations.moe_layers)
    assert not attention["experts"].any()
    assert not experts["kv"].any()
    assert not experts["weights"].any()
    assert experts["experts"].sum() == pytest.approx(moe.num_experts * moe.expert_bytes * layers)
    whole = question.width_bytes(1).weights(
        question.operations.layers_within(0, len(spec.layers) - 1), 4, first=True, last=True
    )
    assert attention["weights"].tolist() == [whole] * 4


def test_layouts_without_it_are_written_as_ever(question: Instance) -> None:
    layout = lying(question, ATTENTION, EXPERTS, batches=2, per_rank=16)
    data = layout.model_dump(mode="json")
    assert Layout.model_validate(data) == layout
    plain = layout.replicas[0].model_copy(update={"apart": None})
    assert set(plain.model_dump(mode="json")) == {"role", "shape", "stages", "kv"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"role": "mixed"}, "only decode replicas"),
        ({"layers": (0, 3)}, "expected those of all layers, 0-23"),
        ({"chips": ("r1g0", "r0g5")}, "stand in other domains, too"),
        ({"slots": True}, "attention's chips have expert slots, too"),
        ({"ep": 4}, "experts lie on 2 chips of their own"),
        ({"kv": "r0g4"}, "not one of the replica's that hold KV"),
    ],
)
def test_wrong_replicas_are_refused_in_words(changed: dict[str, Any], said: str) -> None:
    asked = Scenario(model="gpt-oss-20b", cluster="hgx-h100@2", workload="chat", pay="used")
    instance = resolve_instance(asked)
    data = lying(instance, ATTENTION, EXPERTS, batches=2, per_rank=4).model_dump(mode="json")
    (one,) = data["replicas"]
    experts = one["apart"]["experts"]
    one |= {"role": changed.get("role", "decode")}
    experts |= {name: changed[name] for name in ("layers", "chips") if name in changed}
    if "slots" in changed:
        one["stages"][0]["slots_per_chip"] = 1
    if "ep" in changed:
        one["shape"]["ep"] = changed["ep"]
    if "kv" in changed:
        one["kv"][0]["chip"] = changed["kv"]
    found = evaluate(instance, Layout.model_validate(data)).violations
    assert any(said in violation.message for violation in found), found


def test_what_does_not_combine_is_refused_in_words(question: Instance) -> None:
    layout = lying(question, ATTENTION, EXPERTS, batches=2, per_rank=16)
    for options, said in (
        ({"engine": "sglang"}, "does not run attention and experts apart"),
        ({"two_batch_overlap": True}, "passes in two halves do not combine"),
        ({"within_measured": True}, "no measured run has experts apart"),
    ):
        scenario = question.scenario.model_copy(update=options)
        found = evaluate(replace(question, scenario=scenario), layout).violations
        assert any(said in violation.message for violation in found), options


def test_exports_and_replay_refuse_it_in_words(question: Instance) -> None:
    layout = lying(question, ATTENTION, EXPERTS, batches=2, per_rank=16)
    for target in ("sglang", "vllm", "trtllm", "dynamo", "slurm", "dot"):
        with pytest.raises(ExportError, match="attention and experts on chips of their own"):
            export_layout(question, layout, target)
    assert '"microbatches": 2' in export_layout(question, layout, "json").files["layout.json"]
    with pytest.raises(InstanceError, match="replay does not run experts apart"):
        standing(question, layout, Habits(), Gaps(), 2000)
