"""One time limit is that of all searches of a command together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from costmodel.experts.expert_load import ExpertLoads, skewed_load
from rackfit.placement import left_out, place, sharing
from rackfit.placement.alike import place_alike
from solver.experts.request import PlaceOptions

#: two layers that need no spare slot, and two that do
LOADS = np.concatenate([np.ones((2, 32)) / 32, skewed_load(2, 32, seed=0)])
WINDOWS = LOADS * np.random.default_rng(1).lognormal(0, 0.4, (3, 4, 32))
LIMIT_S = 8.0


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time limits of the searches that are begun; each is over at once."""
    found: list[float] = []

    def noted(loads: ExpertLoads, options: PlaceOptions, *more: Any) -> Any:
        assert options.time_limit_s is not None
        found.append(options.time_limit_s)
        return place_alike(loads, options, *more)

    for module in (place, sharing, left_out):
        monkeypatch.setattr(module, "place_alike", noted)
    return found


def recorded(windows: NDArray[np.float64]) -> ExpertLoads:
    names = tuple("abc"[: len(windows)])
    return ExpertLoads(windows, tuple(range(4)), 4, names, "drawn")


@pytest.mark.parametrize("layer_slots", ["rows", "any"])
def test_layers_that_share_slots_share_the_time(limits: list[float], layer_slots: Any) -> None:
    options = PlaceOptions(
        8, 40, effort="fast", time_limit_s=LIMIT_S, layer_slots=layer_slots, objective="sum"
    )
    place.place(recorded(LOADS[None]), options)
    assert len(limits) > 1
    assert limits[0] <= LIMIT_S / len(limits)


def test_recordings_that_are_left_out_share_the_time(limits: list[float]) -> None:
    options = PlaceOptions(8, 40, effort="fast", time_limit_s=LIMIT_S)
    place.place(recorded(WINDOWS), options, leave_out=("b", "c"))
    assert len(limits) == 3
    assert limits[0] <= LIMIT_S / 3
    assert max(limits) <= LIMIT_S


def test_where_the_counts_were_not_tried_all_layers_have_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The choice of the counts has a part of the time, and its end leaves a placement."""
    now = iter([0.0])
    monkeypatch.setattr(sharing.time, "monotonic", lambda: next(now, 1e9))
    options = PlaceOptions(
        8, 48, effort="fast", time_limit_s=LIMIT_S, layer_slots="rows", objective="sum"
    )
    found = place.place(recorded(LOADS[None]), options)
    assert found.shared is not None
    assert found.shared.layer_slots == (48,) * 4
