"""The bound without fleets: never above what a search finds, tighter by placing, and nothing asked twice."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo
from solver import known
from solver.bounds.relaxed import relaxed_bound
from solver.clock import Clock
from solver.fleet.items import Item
from solver.place import placements
from solver.rounds import Search
from solver.search import search
from topology.errors import NoFeasibleLayout

#: model, cluster, TTFT and TPOT in seconds
ASKED = (
    ("llama-3.1-8b", "hgx-h100@4", 2.0, 0.05),
    ("qwen3-30b-a3b", "hgx-h200@2", 2.0, 0.05),
    ("gpt-oss-20b", "hgx-b200@4", 0.5, 0.02),
    ("llama-3.1-70b", "gb200-nvl72", 2.0, 0.05),
)


def question(
    model: str, cluster: str, ttft: float, tpot: float, pay: str = "used", workload: str = "chat"
) -> Instance:
    slo = Slo(ttft=ttft, tpot=tpot)
    return resolve_instance(
        Scenario.model_validate(
            {"model": model, "cluster": cluster, "workload": workload, "slo": slo, "pay": pay}
        )
    )


@pytest.mark.parametrize("asked", ASKED, ids=lambda one: one[0])
def test_no_layout_is_below_the_bound_nor_is_the_bound_below_that_of_shapes(
    asked: tuple[str, str, float, float],
) -> None:
    instance = question(*asked)
    found = search(instance, clock=Clock(), gap=0.01)
    own = relaxed_bound(instance, clock=Clock(), gap=0.005, seed=0)
    cost = found.evaluation.usd_per_m_output_tokens
    assert cost is not None
    assert own.bound_usd_per_m_output_tokens <= cost * (1 + 1e-9)
    first = Search(instance, Clock(), 0.01, 0, None).first_bound_usd()
    assert own.bound_usd_per_m_output_tokens >= first * (1 - 1e-9)
    assert own.covers == found.certificate.covers


def test_placing_tightens_the_bound() -> None:
    instance = question("llama-3.1-70b", "gb200-nvl72@4", 2.0, 0.05, workload="reasoning")
    loose = relaxed_bound(instance, clock=Clock(), gap=10.0, seed=0)
    close = relaxed_bound(instance, clock=Clock(), gap=0.001, seed=0)
    assert close.bound_usd_per_m_output_tokens > loose.bound_usd_per_m_output_tokens
    assert close.gap < loose.gap


def test_what_fits_nowhere_is_said() -> None:
    with pytest.raises(NoFeasibleLayout):
        relaxed_bound(
            question("deepseek-v3", "hgx-h100", 2.0, 0.05), clock=Clock(), gap=0.01, seed=0
        )


def test_a_search_asks_for_no_fleet_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    solved = known.solve_fleet

    def counted(items: list[Item], *words: Any, **more: Any) -> Any:
        asked.append((tuple(items), more["time_limit_s"]))
        return solved(items, *words, **more)

    monkeypatch.setattr(known, "solve_fleet", counted)
    instance = question("qwen3-32b", "hgx-b200@2", 2.0, 0.05, "whole")
    search(instance, clock=Clock(), gap=0.0)
    assert len(asked) > 3
    assert len(set(asked)) == len(asked)


def test_placements_are_kept_for_other_questions_of_a_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[tuple[int, ...]] = []
    place = placements.place_layers

    def counted(loads: Any, slots: tuple[int, ...], **more: Any) -> Any:
        made.append(tuple(slots))
        return place(loads, slots, **more)

    monkeypatch.setattr(placements, "place_layers", counted)
    monkeypatch.setattr(placements, "_kept", {})
    for kind in ("hgx-h200", "hgx-b200"):
        search(question("qwen3-30b-a3b", kind, 2.0, 0.05, "whole"), clock=Clock(), gap=0.02)
    assert made
    assert len(set(made)) == len(made)
