"""Questions about places of KV: long contexts leave HBM, and a tier that is too slow is named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from solver.clock import Clock
from solver.search import search
from topology.catalogue import data_dir
from topology.errors import InstanceError, NoFeasibleLayout


def long_model(folder: Path, name: str) -> str:
    """A shipped model whose positions are said to reach beyond a million."""
    config = json.loads((data_dir("models") / f"{name}.json").read_text())
    config["max_position_embeddings"] = 2**20 + 2**14
    path = folder / f"{name}-1m.json"
    path.write_text(json.dumps(config))
    return str(path)


@pytest.mark.parametrize(
    ("name", "cluster", "why"),
    [
        ("llama-3.1-70b", "nvl-2", r"in host memory, which has 240 GB per chip"),
        # in one stage, the only rank of which each chip holds all KV
        ("deepseek-v3", "nvl-4", r"or the caches \(70\.3 GB per chip\) in host memory"),
    ],
)
def test_a_million_tokens_leave_hbm(tmp_path: Path, name: str, cluster: str, why: str) -> None:
    asked = {
        "model": long_model(tmp_path, name),
        "cluster": cluster,
        "workload": {"input_tokens": 1_000_000, "output_tokens": 1_000},
        "limits": {"max_pipeline_stages": 1},
    }
    with pytest.raises(NoFeasibleLayout, match=why):
        search(resolve_instance(Scenario.model_validate(asked)), clock=Clock(120))
    instance = resolve_instance(Scenario.model_validate(asked | {"kv_tiers": ["host"]}))
    result = search(instance, clock=Clock(120))
    assert result.status == "optimal"
    assert result.evaluation.feasible
    generating = [r for r in result.layout.replicas if r.role != "prefill"]
    assert {share.tier for replica in generating for share in replica.kv} == {"host"}
    (use,) = [use for use in result.evaluation.kv_tiers if use.role == generating[0].role]
    host = instance.cluster.chips[0].chip.tier("host")
    assert host is not None
    assert use.bytes <= host.bytes * len(generating[0].chips)
    # every token reads the whole cache through the chips' links
    chips = len(generating) * len(generating[0].chips)
    read_s = use.bytes / chips / host.read_bytes_per_s
    assert result.evaluation.tpot_s is not None
    assert read_s * 0.99 <= result.evaluation.tpot_s


def test_too_slow_a_tier_is_named(tmp_path: Path) -> None:
    asked = {
        "model": long_model(tmp_path, "llama-3.1-70b"),
        "cluster": "nvl-2",
        "workload": {"input_tokens": 1_000_000, "output_tokens": 1_000},
        "slo": {"tpot": "100 ms"},
        "kv_tiers": ["host"],
    }
    with pytest.raises(NoFeasibleLayout) as caught:
        search(resolve_instance(Scenario.model_validate(asked)), clock=Clock(120))
    text = str(caught.value)
    assert "With KV in HBM: " in text
    assert re.search(
        r"of answers in host memory: .* TPOT: the target is 100 ms; \d+ ms is the", text
    )


def test_places_of_kv_are_checked() -> None:
    asked = {"model": "llama-3.1-8b", "cluster": "tpu-v7", "workload": "chat", "kv_tiers": ["host"]}
    with pytest.raises(InstanceError, match="no chip of tpu-v7 has host; tiers beside HBM: none"):
        resolve_instance(Scenario.model_validate(asked))
