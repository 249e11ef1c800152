"""Deployments that others published, priced from files in their engine's own form.

Sources: DeepSeek open-infra-index day 6 (73.7k input tokens/s with cache hits and 14.8k output tokens/s
per H800 node, 20-22 tokens/s per user, 4,989 tokens of context); SGLang's large-scale EP post of
May 2025 (52.3k input and 22.3k output tokens/s per H100 node at 2,000 tokens of input, 256 sequences
per GPU); ai-dynamo's wide-EP recipe for GB200.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo, Workload
from rackfit.documents.result import Result
from rackfit.importers.running import Running, evaluate_running, verdict
from topology.errors import NoFeasibleLayout

FOLDER = Path(__file__).parent / "published"


def _price(
    name: str, engine: str, cluster: str, workload: Workload, *, model: str = "deepseek-v3",
    weight_dtype: str | None = None, tpot: float | None = None, ttft: float | None = None,
    pay: str = "used", compare: bool = False,
) -> Running:  # fmt: skip
    scenario = Scenario.model_validate(
        {
            "model": model, "cluster": cluster, "workload": workload, "slo": Slo(tpot=tpot, ttft=ttft),
            "pay": pay, "weight_dtype": weight_dtype,
        }
    )  # fmt: skip
    return evaluate_running(scenario, engine, FOLDER / name, balanced=True, compare=compare)


def _per_node(running: Running, role: str, tokens: float) -> float:
    """Tokens per second of 8 chips of one role."""
    rates = [
        (float(price.service.requests_per_s) * tokens, len(replica.chips))
        for replica, price in zip(
            running.layout.replicas, running.evaluation.priced.replicas, strict=True
        )
        if replica.role == role
    ]
    return 8 * sum(rate for rate, _ in rates) / sum(chips for _, chips in rates)


def test_files_are_those_of_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "deployments.md").read_text()
    for path in FOLDER.iterdir():
        assert f'title="{path.name}"\n{path.read_text()}```' in page


def test_gb200_recipe() -> None:
    workload = Workload(input_tokens=1024, output_tokens=1024)
    running = _price(
        "gb200-wide-ep.yaml", "trtllm", "gb200-nvl72", workload, model="deepseek-r1",
        weight_dtype="fp4", tpot=0.015, compare=True,
    )  # fmt: skip
    assert [len(replica.chips) for replica in running.layout.replicas] == [4, 32]
    assert [replica.shape.batch for replica in running.layout.replicas] == [16, 1024]
    assert running.evaluation.feasible
    assert running.instead is not None
    assert running.excess is not None
    assert running.excess > -running.instead.certificate.gap
    assert running.instead.evaluation.feasible


@pytest.mark.slow
def test_sglang_96_h100() -> None:
    workload = Workload(input_tokens=2000, output_tokens=100)
    running = _price("sglang-96-h100.sh", "sglang", "hgx-h100@13", workload)
    assert [len(replica.chips) for replica in running.layout.replicas] == [32, 72]
    assert _per_node(running, "decode", 100) == pytest.approx(22_282, rel=0.15)
    assert _per_node(running, "prefill", 2000) == pytest.approx(52_300, rel=0.35)


@pytest.mark.slow
def test_deepseek_own_units() -> None:
    workload = Workload(input_tokens=4439, output_tokens=1100, cached_tokens=2499)
    running = _price(
        "deepseek-prefill-decode.sh", "sglang", "hgx-h800@26", workload, tpot=0.05, ttft=5.0,
        pay="whole", compare=True,
    )  # fmt: skip
    assert [len(replica.chips) for replica in running.layout.replicas] == [32, 32, 144]
    slots = [replica.stages[0].slots_per_chip for replica in running.layout.replicas]
    assert slots == [9, 9, 2]
    assert _per_node(running, "decode", 1100) == pytest.approx(14_800, rel=0.25)
    assert _per_node(running, "prefill", 4439) == pytest.approx(73_700, rel=0.35)
    assert running.excess is not None
    assert running.excess > 0.2
    assert verdict(running).startswith("you pay ")


def test_a_question_without_an_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(instance: object, *, time_limit_s: float | None) -> Result:
        raise NoFeasibleLayout("nothing fits")

    monkeypatch.setattr("rackfit.api.solve", nothing)
    running = _price(
        "gb200-wide-ep.yaml", "trtllm", "gb200-nvl72",
        Workload(input_tokens=1024, output_tokens=1024), model="deepseek-r1", weight_dtype="fp4",
        compare=True,
    )  # fmt: skip
    assert running.excess is None
    said = "Rackfit found no layout in its place, though this one fits: nothing fits\n"
    assert verdict(running) == said
