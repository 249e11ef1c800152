"""What ``scale-up`` says of systems that were measured: its own ratios, and what they rest on."""

from __future__ import annotations

import re

import pytest
from asking import ask

from rackfit.studies.base import Row
from rackfit.studies.systems import measured as measured_systems

#: tokens per second and chip that a search would find
FOUND = {"gb200-nvl72": 2900.0, "hgx-b200@9": 1000.0, "alone": 500.0, "gb300-nvl72": 3100.0}


@pytest.fixture(autouse=True)
def searches(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(instance, options) -> Row:
        alone = instance.limits.max_domains_per_replica == 1
        name = "alone" if alone else instance.scenario.cluster
        return {"output_tokens_per_s_per_gpu": FOUND[name], "gap": 0.01}

    monkeypatch.setattr(measured_systems, "solve_row", found)


def test_a_rack_over_nodes_is_told_with_its_assumption() -> None:
    result = ask("scale-up", {"measured": ["NVL72 over nodes"]})
    (row,) = result.rows
    assert row["measured_ratio"] == 4.39
    assert row["our_ratio_of_plain_layouts"] == pytest.approx(4.39, rel=0.25)
    assert (row["our_ratio"], row["our_ratio_within_a_node"]) == pytest.approx((2.9, 5.8))
    (sentence,) = result.conclusion
    told = [float(text) for text in re.findall(r"(\d+\.\d\d) times", sentence)]
    assert told == pytest.approx([4.39, row["our_ratio_of_plain_layouts"], 2.9, 5.8], abs=0.005)
    assert "1 token drafted per pass, 85% accepted" in sentence
    assert "assumed" in sentence
    assert "125 tokens/s per user" in sentence


def test_a_pair_without_known_layouts_states_the_cheapest_ones() -> None:
    result = ask("scale-up", {"measured": ["GB300 over GB200"]})
    (row,) = result.rows
    assert row["our_ratio_of_plain_layouts"] is None
    assert "draft_tokens" not in row
    (sentence,) = result.conclusion
    assert re.findall(r"(\d+\.\d\d) times", sentence) == ["2.83", "1.07"]
    assert "27 tokens/s per user" in sentence
