"""KV outside HBM in launch files: refused where passes read it, noted where it waits."""

from __future__ import annotations

import pytest

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.exporters.export import export_layout
from topology.errors import ExportError

WORKLOAD = {"input_tokens": 4000, "output_tokens": 500, "cached_tokens": 3000, "hold_s": 100,
            "return_rate": 0.5}  # fmt: skip


def layout(tier: str, idle_in: str | None = None) -> Layout:
    kv = [{"chip": "r0g0", "tier": tier, "sequences": 8, "bytes": 3.9e9}]
    if idle_in is not None:
        idle = {"tier": idle_in, "idle": True, "sequences": 50, "bytes": 2e10}
        kv.append({"chip": "r0g0", **idle})
    shape = {"tp": 1, "ep": 1, "pp": 1, "attention_dp": 1, "batch": 8}
    stage = {"layers": [0, 31], "chips": ["r0g0"]}
    replica = {"role": "mixed", "shape": shape, "stages": [stage], "kv": kv}
    return Layout.model_validate({"replicas": [replica]})


@pytest.fixture
def instance() -> Instance:
    scenario = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": WORKLOAD,
                "kv_tiers": ["host", "flash"]}  # fmt: skip
    return resolve_instance(Scenario.model_validate(scenario))


@pytest.mark.parametrize("target", ["sglang", "vllm", "trtllm", "dynamo", "slurm"])
def test_caches_read_from_a_tier_are_refused(instance: Instance, target: str) -> None:
    with pytest.raises(ExportError, match="every pass reads KV from host"):
        export_layout(instance, layout("host"), target)


def test_idle_kv_is_noted(instance: Instance) -> None:
    notes = export_layout(instance, layout("hbm", "flash"), "sglang").notes
    assert any("20 GB of idle KV in flash of the mixed replicas" in note for note in notes), notes
    plain = export_layout(instance, layout("hbm", "flash"), "json")
    assert not any("idle KV" in note for note in plain.notes)
    assert '"tier": "flash"' in "".join(plain.files.values())
