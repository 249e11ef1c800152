"""The judge of layers by machine on cases counted by hand, and the questions it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from costmodel.flow.judge import load_placement, problems, tokens_per_s, usd_per_m_tokens
from costmodel.flow.question import FlowQuestion, flow_names, load_flow
from topology.catalogue import checked
from topology.errors import InstanceError


def question(**changed: Any) -> FlowQuestion:
    """Four layers; machine ``a`` passes 100, 50, 30 tokens/s with 1, 2, 3 layers, ``b`` 60 and 20."""
    data: dict[str, Any] = {
        "name": "by-hand",
        "model": {"name": "m", "layers": 4, "activation_bytes": 10, "token_bytes": 2},
        "machines": {
            "a": {"tokens_per_s": [100, 50, 30], "usd_per_hour": 2},
            "b": {"tokens_per_s": [60, 20], "usd_per_hour": 1},
        },
        "nodes": ["a", "a", "b", "b"],
        "links": {"between": 10_000, "source": 10_000, "sink": 10_000},
    } | changed
    return FlowQuestion.model_validate(data)


def test_a_chain_passes_what_its_slowest_machine_passes() -> None:
    assert tokens_per_s(question(), {0: (0, 1), 1: (2, 3)}) == 50
    assert tokens_per_s(question(), {0: (0, 2), 2: (3, 3)}) == 30


def test_machines_side_by_side_add_up_and_requests_take_every_path() -> None:
    # layers 0-1 on a and b (50 + 20), 2-3 likewise: any of the first feeds any of the second
    assert tokens_per_s(question(), {0: (0, 1), 2: (0, 1), 1: (2, 3), 3: (2, 3)}) == 70
    # a (0-1) hands to a (2-3) and to b (2) which hands to b (3): 50 in all, not 50 + 60
    assert tokens_per_s(question(), {0: (0, 1), 1: (2, 3), 2: (2, 2), 3: (3, 3)}) == 50


def test_the_next_machine_starts_exactly_after_the_last_layer() -> None:
    assert tokens_per_s(question(), {0: (0, 2), 1: (2, 3)}) == 0
    assert tokens_per_s(question(), {0: (0, 1)}) == 0


def test_links_hold_the_flow_back_each_way_and_at_both_ends() -> None:
    rows = [[400, 100, 100], [100, 100], [100]]
    narrow = question(links={"between": rows, "source": 10_000, "sink": 10_000})
    assert tokens_per_s(narrow, {0: (0, 1), 1: (2, 3)}) == 40
    assert tokens_per_s(narrow, {0: (0, 1), 2: (2, 3)}) == 10
    ends = question(links={"between": 10_000, "source": [60, 80, 80, 80], "sink": 90})
    assert tokens_per_s(ends, {0: (0, 1), 1: (2, 3)}) == 30
    assert tokens_per_s(ends, {1: (0, 1), 0: (2, 3)}) == 40


def test_a_network_card_may_be_slower_than_the_machine() -> None:
    machines = {"a": {"tokens_per_s": [100, 50], "nic_bytes_per_s": 250}}
    slow = question(machines=machines, nodes=["a", "a"])
    assert tokens_per_s(slow, {0: (0, 1), 1: (2, 3)}) == 25


def test_money_pays_for_every_machine_used_or_not() -> None:
    asked = question()
    assert asked.usd_per_hour == 6
    assert usd_per_m_tokens(asked, 50) == pytest.approx(6 / 3600 / 50 * 1e6)
    assert usd_per_m_tokens(asked, 0) is None
    free = question(machines={"a": {"tokens_per_s": [1]}, "b": {"tokens_per_s": [1], "chip": "l4"}})
    assert free.usd_per_hour is None


def test_problems_name_node_and_layers() -> None:
    found = problems(question(), {0: (0, 3), 2: (3, 4), 9: (0, 0)})
    assert found == [
        "node 0 (a): 4 layers, it holds 3",
        "node 2: layers 3 to 4 of 0 to 3",
        "node 9: there are 4 nodes, numbered from 0",
    ]
    with pytest.raises(InstanceError, match="it holds 3"):
        tokens_per_s(question(), {0: (0, 3)})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"nodes": ["a", "c"]}, "no machine 'c'"),
        ({"links": {"between": [[1]], "source": 1, "sink": 1}}, "3 rows of 3 to 1"),
        ({"links": {"between": 1, "source": [1, 1], "sink": 1}}, "2 speeds for 4 nodes"),
        ({"links": {"between": "1 GB", "source": 1, "sink": 1}}, "quantity in B/s"),
        ({"machines": {"a": {"tokens_per_s": []}, "b": {"tokens_per_s": [1]}}}, "name at least one"),
        ({"machines": {"a": {"tokens_per_s": [1], "chip": "x9"}, "b": {"tokens_per_s": [1]}}}, "x9"),
    ],
)  # fmt: skip
def test_wrong_questions_are_refused_with_the_place(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InstanceError, match=said), checked("mine.yaml"):
        question(**changed)


@pytest.mark.parametrize(
    "text", ["[]", '{"x": [0, 1]}', '{"0": [1]}', '{"0": [0, 1.5]}', '{"0": 3}']
)
def test_wrong_placements_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ranges.json"
    path.write_text(text)
    with pytest.raises(InstanceError, match="expected"):
        load_placement(path)


#: first layers of the plan that the authors of Helix publish for ten machines; each holds six
PUBLISHED = (42, 36, 6, 18, 54, 12, 30, 0, 24, 48)


def test_the_published_plan_for_ten_machines_has_the_published_value() -> None:
    assert "helix-quality10" in flow_names()
    placement = {node: (first, first + 5) for node, first in enumerate(PUBLISHED)}
    value = tokens_per_s(load_flow("helix-quality10"), placement)
    assert value == pytest.approx(286.5874097546, rel=1e-9)
