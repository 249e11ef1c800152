"""Which numbers are looked at where replays judge: beside all numbers, with kinds whose truth is known."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from solver.clock import Clock
from solver.plan.sizing import mix_judged
from solver.plan.sizing.carriers import Carrier
from solver.plan.sizing.choose import Choice
from solver.plan.sizing.mix import Alone, Kind
from solver.plan.sizing.mix_replay import Missed, MixReplay, Part
from solver.plan.sizing.size import Sized, Wanted

RATE, MORE = 100.0, 1.3
#: kinds, and chips of a unit
CHIPS = {"a": 8, "b": 12}


class Known(Carrier):
    """A kind of which every number carries what a table says; none carries more than 1.3 times that."""

    less, more, exact = 0.95, 1.06, True

    def __init__(self, truth: list[float], kind: Kind, one: Sized, wanted: Wanted) -> None:
        super().__init__(kind, one, wanted)
        assert self.enough is not None
        self.truth, self.met = truth, {self.enough: truth[self.enough]}

    def knows(self, units: int, rate: float) -> bool:
        """Whether it was looked for."""
        return units in self.met

    def learn(self, units: int, rate: float) -> None:
        """A layout of so many units, as good as it gets, for rates that they carry."""
        if self.truth[units] >= rate:
            self.met[units] = self.truth[units]
        else:
            self._miss(units, rate)

    def part(self, units: int, rate: float) -> Part:
        """No layout."""
        return Part(self.kind.name, units, rate, cast("Any", None), cast("Any", None))


def question(rng: np.random.Generator, wanted: Wanted) -> tuple[list[Known], list[Sized], Alone]:
    carriers, found = [], []
    for name, chips in CHIPS.items():
        spare = wanted.lost(chips)
        price, each = float(rng.uniform(5, 20)), float(rng.uniform(12, 60))
        truth = np.cumsum([0.0, *(each * rng.uniform(0.85, 1.0, 12 + spare))]).tolist()
        enough = int(np.searchsorted(truth, RATE))
        units: Any = SimpleNamespace(
            known={}, usd_per_hour=price, output_tokens=10.0, chips=chips,
            most_of_each=lambda _, each=each: MORE * each,
            bounds=lambda truth=truth: {n: MORE * rate for n, rate in enumerate(truth)},
        )  # fmt: skip
        count = enough + spare
        one = Sized(name, chips, count, 1, count, spare, RATE, 0.0, count * price, 1.0, 0.0, "", ())
        carriers.append(Known(truth, Kind(units, name, count), one, wanted))
        found.append(one)
    alone = Alone.of(found)
    assert alone is not None
    return carriers, found, alone


def losses(wanted: Wanted) -> list[tuple[int, ...]]:
    """Any units that hold what may be lost, of which none could stand."""
    sizes = [1, 1] if wanted.spare else list(CHIPS.values())
    lost = wanted.spare or wanted.spare_chips
    return [
        gone
        for gone in product(range(lost + 1), repeat=2)
        if (held := sum(n * size for n, size in zip(gone, sizes, strict=True))) >= lost
        and all(held - size < lost for n, size in zip(gone, sizes, strict=True) if n)
    ]


def test_a_loss_takes_any_units_that_hold_it() -> None:
    """Twenty chips of units of 12 and 8: two of 12, one of each, or three of 8, as far as they are there."""

    def lost(*units: int) -> list[tuple[int, ...]]:
        return sorted(choice.losses(units), reverse=True)

    choice = Choice([1.0, 1.0], 1.0, lost=20, sizes=[8, 12], clock=Clock(), seed=0)
    assert lost(5, 5) == [(3, 0), (1, 1), (0, 2)]
    assert lost(2, 1) == [(1, 1)]
    assert lost(5, 0) == [(3, 0)]
    assert lost(1, 0) == []
    carried = [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]]
    assert choice.worst_loss(carried, (5, 5)) == (3, 0)
    assert choice.worst(carried, (5, 5)) == 7.0
    of_one = Choice([1.0, 1.0], 1.0, lost=2, sizes=[1, 1], clock=Clock(), seed=0)
    assert list(of_one.losses((3, 3))) == [(2, 0), (1, 1), (0, 2)]
    none = Choice([1.0, 1.0], 1.0, lost=0, sizes=[1, 1], clock=Clock(), seed=0)
    assert list(none.losses((3, 3))) == [(0, 0)]


@pytest.mark.parametrize("seed", range(30))
def test_trying_all_numbers_chooses_as_cp_sat_does(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    kinds = int(rng.integers(2, 4))
    tables = [[0.0, *np.cumsum(rng.uniform(0.0, 0.4, rng.integers(2, 7)))] for _ in range(kinds)]
    lost = int(rng.integers(0, 4))
    sizes = [int(size) for size in (rng.integers(1, 4, kinds) if seed % 2 else np.ones(kinds))]
    without = [[int(rng.integers(0, 4)) for _ in range(kinds)] for _ in range(6)]
    prices = [float(price) for price in rng.permutation(3)[:kinds] + 1]
    chosen = []
    for tried in (0, 10**6):
        monkeypatch.setattr("solver.plan.sizing.choose._TRIED", tried)
        for beneath in (None, 9.0):
            choice = Choice(prices, 1.0, lost=lost, sizes=sizes, clock=Clock(), seed=0)
            units, usd = choice.cheapest(tables, without=without, beneath=beneath)
            assert units not in without
            chosen.append((None if units is None else choice.usd(units), usd))
    assert chosen[:2] == chosen[2:]


def test_hundreds_of_units_of_two_kinds_are_chosen_and_proven() -> None:
    """The tables alone took CP-SAT all of its time: no mix was found, and nothing was proven."""
    tables = []
    for each, most, known in (
        (335.25, 152, {32: 10673.2, 148: 49500.0, 149: 49835.6, 150: 50170.1, 151: 50504.6}),
        (51.29, 491, {32: 1632.0}),
    ):
        own = [n * each for n in range(most)]
        for number, bound in known.items():
            own[: number + 1] = [min(rate, bound) for rate in own[: number + 1]]
        tables.append(own)
    choice = Choice([10.4, 3.2], 50_000.0, lost=8, sizes=[8, 8], clock=Clock(), seed=0)
    best = min(
        (
            first * 10.4 + second * 3.2
            for first in range(1, 152)
            for second in range(1, 491)
            if tables[0][first - 1] + tables[1][second] >= 50_000
            and tables[0][first] + tables[1][second - 1] >= 50_000
        ),
    )  # fmt: skip
    units, low = choice.cheapest(tables)
    assert units is not None
    assert low == choice.usd(units)
    assert low <= best
    assert choice.worst(tables, units) >= 50_000 * (1 - 1e-6)


def test_a_mix_with_too_many_losses_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Wanted(RATE, 1.0, 2)
    carriers, _, alone = question(np.random.default_rng(2), wanted)
    monkeypatch.setattr(mix_judged, "_LOSSES", 0)
    mixing = mix_judged._Judged(carriers, alone, wanted, cast("Any", None), (), Clock(), 0)
    mixing.run(0.0, mix_judged.Work(), lambda _: None)
    assert mixing.answer(0.0).usd_per_hour == pytest.approx(alone.usd_per_hour)


@pytest.mark.parametrize(
    "wanted",
    [*(Wanted(RATE, 1.0, spare) for spare in (0, 1, 2)), *(Wanted(RATE, 1.0, 0, chips) for chips in (8, 20, 24))],
    ids=lambda wanted: f"{wanted.spare} units {wanted.spare_chips} chips",
)  # fmt: skip
def test_what_is_found_holds_and_bounds_do(monkeypatch: pytest.MonkeyPatch, wanted: Wanted) -> None:
    rng, better, best = np.random.default_rng(wanted.spare or wanted.spare_chips), 0, 0
    for _ in range(25):
        carriers, found, alone = question(rng, wanted)
        truth = {one.kind.name: one.truth for one in carriers}
        prices = {one.kind.name: one.kind.units.usd_per_hour for one in carriers}

        def replayed(
            lost: dict[str, int], parts: list[Part], *_: object, truth: Any = truth
        ) -> Any:
            late = [
                one for one in parts if one.requests_per_s > truth[one.kind][one.units] * (1 + 1e-9)
            ]
            return Missed(late[0], 1) if late else MixReplay(lost, (), 1, 0.0, 0.0, 1.0)

        monkeypatch.setattr(mix_judged, "replay_mix", replayed)
        mixing = mix_judged._Judged(carriers, alone, wanted, cast("Any", None), (), Clock(), 0)
        low = mixing.low()
        mixing.run(low, mix_judged.Work(), lambda _: None)
        answer = mixing.answer(low)
        enough: dict[tuple[int, ...], float] = {}
        for numbers in product(*(range(one.count + 1) for one in found if one.count is not None)):
            bought = dict(zip("ab", numbers, strict=True))
            usd = sum((n * prices[name] for name, n in bought.items()), start=0.0)
            left = [
                {k: max(0, n - gone) for (k, n), gone in zip(bought.items(), lost, strict=True)}
                for lost in losses(wanted)
            ]
            if all(sum(truth[name][n] for name, n in one.items()) >= RATE for one in left):
                enough[numbers] = usd
        answered = tuple(answer.units.get(name, 0) for name in "ab")
        assert answered in enough
        assert answer.usd_per_hour == pytest.approx(enough[answered])
        assert answer.usd_per_hour <= alone.usd_per_hour
        # no numbers that carry the peak cost less than the bound
        assert answer.bound_usd_per_hour <= min(enough.values()) * (1 + 1e-9)
        better += answer.usd_per_hour < alone.usd_per_hour * (1 - 1e-9)
        best += answer.usd_per_hour <= min(enough.values()) * (1 + 1e-9)
    assert better >= 1
    # what is likely is a guess: most often the cheapest of all is found
    assert best >= 20
