"""A search of expert placements whose time is over improves nothing, and what it returns is whole."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from costmodel.experts.coactivation import pair_shares
from costmodel.experts.dispatch import check_placement
from costmodel.experts.expert_load import skewed_load
from solver.experts.layer_slots import busiest_shares, slot_choices
from solver.experts.local import deepen, neighbourhood
from solver.experts.nodes import abroad, together
from solver.experts.nodes.copies import Routing
from solver.experts.nodes.grouped import place_on_nodes
from solver.experts.nodes.together import Together, homes
from solver.experts.place import place_layers

LOADS = skewed_load(12, 64, seed=4)
PAST = time.monotonic() - 1.0


def test_after_the_time_no_further_number_of_slots_is_tried() -> None:
    choices = slot_choices(64, 16, 160, rows=True)
    assert len(choices) > 2
    found = busiest_shares(LOADS, 16, choices, deadline=PAST)
    assert np.isfinite(found[:, 0]).all()
    assert np.isinf(found[:, 1:]).all()


@pytest.mark.parametrize("width", [5, 20])
def test_after_the_time_a_placement_over_nodes_is_only_made_whole(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """With 20 slots a chip and 16 experts at home some must go abroad, whatever the time."""

    def no_sweep(*_: object) -> None:
        raise AssertionError("swept after the time")

    steps: list[int] = []
    monkeypatch.setattr("solver.experts.local.repartition.sweep", no_sweep)
    step = abroad.Spender.step

    def counted(self: abroad.Spender, *told: Any) -> Any:
        steps.append(1)
        return step(self, *told)

    monkeypatch.setattr(abroad.Spender, "step", counted)
    placed = place_on_nodes(
        LOADS, 16, 16 * width, chips_per_node=4, groups=8,
        routing=Routing(top_k=4, top_groups=4, price=1.0), deadline=PAST,
    )  # fmt: skip
    check_placement(placed.physical_to_logical, 64, width)
    assert bool(steps) == (width == 20)


def test_layers_that_time_cut_short_spend_what_is_left_at_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Parts of the layers are worked on one after another: the last may have begun when time was over."""
    clock = iter([0.0] * 20)
    monkeypatch.setattr("solver.experts.nodes.abroad.time.monotonic", lambda: next(clock, 2.0))
    placed = place_on_nodes(
        LOADS, 16, 80, chips_per_node=4, groups=8,
        routing=Routing(top_k=4, top_groups=4, price=1.0), deadline=1.0,
    )  # fmt: skip
    check_placement(placed.physical_to_logical, 64, 5)


def test_after_the_time_no_home_is_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_exchange(*_: object) -> bool:
        raise AssertionError("exchanged after the time")

    rng = np.random.default_rng(0)
    picks = np.argsort(rng.random((200, 12, 64)), axis=2)[:, :, :4]
    known = Together(pair_shares(picks, 64), 4, 1.0)
    monkeypatch.setattr(together.Homes, "exchange", no_exchange)
    home = homes(LOADS / LOADS.sum(axis=1, keepdims=True), 4, known, deadline=PAST)
    assert (np.sort(home, axis=1) == np.repeat(np.arange(4), 16)).all()


def test_the_program_of_a_whole_layer_ends_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float | None] = []
    anew = neighbourhood.place_anew

    def noted(*told: object, deadline: float | None = None, **more: object) -> object:
        given.append(deadline)
        return anew(*told, deadline=deadline, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(deepen, "place_anew", noted)
    before = time.monotonic()
    place_layers(skewed_load(2, 12, seed=1), [4] * 4, time_limit_s=5.0)
    assert given
    assert all(one is not None and before < one <= time.monotonic() + 5.0 for one in given)
