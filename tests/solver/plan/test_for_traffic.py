"""The rate at which the replays of several layouts all meet the targets."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costmodel.question.workload import Limits
from solver.clock import Clock
from solver.plan import for_traffic
from solver.plan.bounds.most import asked_of
from solver.plan.for_traffic import best_for_traffic, highest_rate
from tests.solver.plan.test_units import KIND, long_prompts, with_trace

#: requests/s at which each layout still meets the targets
_CARRIED = {"slow": 6.0, "quick": 9.0, "slower": 5.0}


@pytest.mark.parametrize("order", list(permutations(_CARRIED)))
def test_the_slowest_of_several_layouts_counts_wherever_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...]
) -> None:
    met: dict[str, float] = {}

    def meets(_: Any, layout: Any, requests: Any, *__: Any) -> bool:
        meets = requests.rate <= _CARRIED[layout] * (1 + 1e-9)
        if meets:
            met[layout] = max(met.get(layout, 0.0), requests.rate)
        return bool(meets)

    monkeypatch.setattr(for_traffic, "meets_targets", meets)
    monkeypatch.setattr(for_traffic, "Course", SimpleNamespace(of=lambda _: None))
    asked = asked_of(with_trace(tmp_path, "llama-3.1-8b", long_prompts(20, 400), 5.0, 0.05), 0)
    anything: Any = None

    def highest(known: float) -> float:
        layouts: Any = order
        return highest_rate(anything, layouts, asked, 10.0, 0, anything, known)

    rate = highest(0.0)
    assert 0.97 * 5.0 <= rate <= 5.0
    assert all(met[name] >= rate * (1 - 1e-9) for name in _CARRIED)
    assert highest(5.5) == 0.0


def test_a_few_long_prompts_are_put_off_where_a_unit_carries_more_then(tmp_path: Path) -> None:
    """Fewer than one prompt in a hundred is long: as they come, others wait for it."""
    rng = random.Random(5)
    rows = (
        f"{turn / 60:.3f},{60_000 if rng.random() < 0.008 else rng.randint(200, 2000)},{rng.randint(20, 200)}"
        for turn in range(2500)
    )
    model = with_trace(tmp_path, "llama-3.1-8b", rows, 1.0, 0.05)
    asked = asked_of(model, 0)
    first, either = (
        best_for_traffic(
            model.scenario(KIND, ()).model_copy(update={"limits": limits}),
            asked, clock=Clock(), gap=0.2, seed=0,
        )
        for limits in (
            Limits(prefill_chunk_tokens=2048, prompt_order="first-come"),
            Limits(prefill_chunk_tokens=2048),
        )
    )  # fmt: skip
    assert first is not None
    assert either is not None
    assert either.instance.limits.prompt_order == "shortest"
    assert either.requests_per_s > 1.01 * first.requests_per_s


def test_a_layout_is_not_asked_for_more_than_it_carries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they come it carries nearly all; with 1 % more a replay would be too short to see that it does not."""
    asked_for: list[tuple[float, float]] = []

    def nearly_all(*given: Any) -> float:
        steady, known = given[3], given[6]
        asked_for.append((known, steady))
        return float(0.995 * steady)

    monkeypatch.setattr(for_traffic, "highest_rate", nearly_all)
    model = with_trace(tmp_path, "llama-3.1-8b", long_prompts(20, 400), 5.0, 0.05)
    found = best_for_traffic(
        model.scenario(KIND, ()), asked_of(model, 0), clock=Clock(), gap=0.2, seed=0
    )
    assert found is not None
    assert asked_for
    assert all(known < steady for known, steady in asked_for)
