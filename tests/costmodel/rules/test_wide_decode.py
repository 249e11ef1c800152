"""A decode replica over two domains takes KV in each of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from costmodel.evaluate import evaluate
from costmodel.layout.layout import KvShare, Layout, Replica, Role, Shape, Stage
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo, Workload


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    fabric = {"kind": "nvswitch", "links_per_switch": [1]}
    domains = [{"fabric": fabric, "chips": [{"chip": "h100", "count": 2}]} for _ in range(2)]
    cluster = {"name": "two", "domains": domains, "scale_out": {"kind": "leaf-spine"}}
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(cluster))
    workload = Workload(input_tokens=1000, output_tokens=200)
    return resolve_instance(Scenario(model="llama-3.1-8b", cluster=str(path), workload=workload))


def _replica(role: Role, chips: tuple[str, ...], layers: int) -> Replica:
    return Replica(
        role=role,
        shape=Shape(tp=1, ep=1, pp=1, attention_dp=len(chips), batch=len(chips)),
        stages=(Stage(layers=(0, layers - 1), chips=chips),),
        kv=tuple(KvShare(chip=chip, sequences=1) for chip in chips),
    )


@pytest.mark.parametrize("prefill", ["r0g1", "r1g1"])
def test_prefill_beside_a_wide_decode_replica_hands_over(prefill: str, instance: Instance) -> None:
    layers = len(instance.model.layers)
    layout = Layout(
        replicas=(
            _replica("prefill", (prefill,), layers),
            _replica("decode", ("r0g0", "r1g0"), layers),
        )
    )
    found = evaluate(instance, layout)
    assert not [v for v in found.violations if v.rule == "uplink_capacity"]
    assert found.requests_per_s
    assert found.priced.transfer_s[0]


def test_a_layout_that_misses_its_ttft_target_has_figures(instance: Instance) -> None:
    """Prefill in one domain, decode in the other: the violation is named, the cost is still said."""
    scenario = instance.scenario.model_copy(update={"slo": Slo(ttft=1e-6)})
    layers = len(instance.model.layers)
    layout = Layout(
        replicas=(_replica("prefill", ("r0g0",), layers), _replica("decode", ("r1g0",), layers))
    )
    found = evaluate(replace(instance, scenario=scenario), layout)
    assert {violation.rule for violation in found.violations} == {"ttft_target"}
    assert found.usd_per_m_output_tokens
