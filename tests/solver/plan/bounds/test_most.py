"""What no layout on some units exceeds, where requests come at a known rate."""

from __future__ import annotations

import pytest

from costmodel.question.scenario import Scenario
from costmodel.question.traffic.load import load_traffic
from costmodel.question.workload import Workload
from costmodel.replay.targets import Targets
from solver.clock import Clock
from solver.plan.bounds.most import Every, most_of_traffic
from solver.traffic.asked import Asked


def test_a_node_whose_turns_are_short_carries_less_than_one_whose_turns_are_of_any_length() -> None:
    requests = load_traffic("azure-conversation-2023").whole_prompts().at_rate(30.0)
    scenario = Scenario(
        model="deepseek-v3",
        cluster="hgx-h200",
        workload=Workload(input_tokens=10, output_tokens=10),
    )
    asked = Asked(requests, Targets(2.0, 0.05))
    most = most_of_traffic(scenario, asked, "whole", Clock(), 0.01, 0)
    any_turns = max(
        one.requests_per_s(one.bounded_usd(Clock(), 0) * one.share)
        for one in Every.of(scenario, asked, "whole")
    )
    assert most < 0.95 * any_turns
    # without a target for first tokens prompts may wait as long as answers are decoded
    patient = most_of_traffic(
        scenario, Asked(requests, Targets(None, 0.05)), "whole", Clock(), 0.01, 0
    )
    assert patient == pytest.approx(any_turns, rel=0.02)
