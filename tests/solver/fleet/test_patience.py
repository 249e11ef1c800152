"""A bound that ran out of its time gets more, where nothing else keeps the answer from its proof."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from solver.clock import Clock
from solver.fleet.asked import FleetAnswer
from solver.fleet.items import Item
from solver.rounds import _FLEET_S, Search
from topology.errors import NoLayoutInTime

Tiny = Callable[[int, int, int, int], Instance]


@pytest.mark.parametrize("seed", [1000, 1003])
def test_a_bound_that_was_cut_short_gets_more_time(tiny: Tiny, seed: int) -> None:
    search = Search(tiny(seed, 3, 2, 2), Clock(None), 0.01, 0, None)
    found = search.fleet

    def cut_short(items: list[Item], limit_s: float) -> FleetAnswer:
        answer = found(items, limit_s)
        return answer if limit_s > _FLEET_S else replace(answer, bound=answer.bound / 2)

    search.fleet = cut_short  # type: ignore[method-assign]
    result = search.run()
    assert result is not None
    assert result.certificate.gap <= 0.01


@pytest.mark.parametrize(
    ("limit_s", "said"),
    [(None, "stopped before"), (600.0, "stopped before"), (1e-9, "the time limit came before")],
)
def test_a_search_that_was_stopped_does_not_blame_a_time_limit(
    limit_s: float | None, said: str
) -> None:
    instance = resolve_instance(Scenario(model="llama-3.1-8b", cluster="hgx-h100", workload="chat"))
    clock = Clock(limit_s)
    clock.stop()
    with pytest.raises(NoLayoutInTime, match=f"{said} the first verified layout"):
        Search(instance, clock, 0.01, 0, None)._fail(proven=False)
    assert str(clock.follower().late("it")) == f"{said} it"
