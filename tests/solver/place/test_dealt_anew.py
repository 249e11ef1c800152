"""Experts are dealt anew for the batch of a replica where what is read of them sets the time."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from costmodel.question.instance import Instance, Scenario, resolve_instance
from costmodel.question.workload import Slo, Workload
from solver.apart.realise import ApartAttempt
from solver.clock import Clock
from solver.place.attempt import Attempt
from solver.search import search


def asked(model: str, cluster: str, tokens: tuple[int, int], tpot: float, apart: Literal["only"] | bool = False) -> Instance:  # fmt: skip
    workload = Workload(input_tokens=tokens[0], output_tokens=tokens[1])
    slo = Slo(ttft=5.0, tpot=tpot)
    return resolve_instance(
        Scenario(model=model, cluster=cluster, workload=workload, slo=slo, apart=apart)
    )


@pytest.mark.parametrize(
    ("question", "of", "cheaper"),
    [
        (("minimax-m3", "hgx-h200@3", (2000, 4000), 0.020), Attempt, 0.10),
        (("qwen3-30b-a3b", "hgx-h100@2", (512, 1000), 0.010, "only"), ApartAttempt, 0.02),
    ],
)
def test_answers_are_cheaper_by_what_chips_read_less(
    question: tuple[Any, ...], of: type, cheaper: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = asked(*question)
    found = search(instance, clock=Clock())
    monkeypatch.setattr(of, "levelled", lambda *_: None)
    before = search(instance, clock=Clock())
    assert found.evaluation.usd_per_m_output_tokens is not None
    assert before.evaluation.usd_per_m_output_tokens is not None
    assert found.evaluation.usd_per_m_output_tokens < (
        before.evaluation.usd_per_m_output_tokens * (1 - cheaper)
    )
    assert found.certificate.gap < before.certificate.gap / 2
