"""Domains that no link joins: what does not fit is told by what stands on one of them."""

from __future__ import annotations

import pytest

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from solver.clock import Clock
from solver.search import search
from topology.errors import NoFeasibleLayout


@pytest.mark.parametrize(
    ("slo", "chips"), [({"tpot": "30ms", "ttft": "2s"}, 8), ({"tpot": "30ms"}, 8), ({}, 8)]
)
def test_shapes_over_them_explain_nothing(slo: dict[str, str], chips: int) -> None:
    scenario = Scenario.model_validate(
        {
            "model": "deepseek-v3",
            "cluster": "hgx-h100@2",
            "failed": ["leaf*"],
            "workload": {"input_tokens": 1000, "output_tokens": 100},
            "slo": slo,
        }
    )
    with pytest.raises(NoFeasibleLayout) as none:
        search(resolve_instance(scenario), clock=Clock())
    said = str(none.value)
    assert f"the closest shape (decode, {chips} chips)" in said
    assert "domains that no link joins hold no replica together" in said
    assert "least reachable" not in said
