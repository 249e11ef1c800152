"""The cheapest mix of kinds beside trying all numbers of each."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

import pytest

from costmodel.layout.layout import Layout
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo, Workload
from solver.clock import Clock
from solver.plan.sizing.carried import Capability, Units
from solver.plan.sizing.mix import Mix, mix
from solver.plan.sizing.size import Wanted, _sized, size

KINDS = ("hgx-b200", "hgx-h100", "hgx-h200")
SCENARIO = Scenario(
    model="llama-3.1-70b", cluster=KINDS[0], slo=Slo(ttft=1.0, tpot=0.03),
    workload=Workload(input_tokens=1000, output_tokens=200),
)  # fmt: skip


@pytest.fixture(scope="module")
def rates() -> dict[str, list[float]]:
    """Requests/s of none, one, two ... units by kind, each number searched; and what a unit costs."""
    found = {}
    for kind in KINDS:
        units = Units(SCENARIO, kind, Clock(), 0.001, 0)
        found[kind] = [0.0, *(units.carried(n).requests_per_s for n in range(1, 13))]
        found[f"{kind} usd"] = [units.usd_per_hour]
    return found


def asked(wanted: Wanted, kinds: tuple[str, ...] = KINDS) -> Mix:
    searched: dict[str, Units] = {}
    sized = size(SCENARIO, kinds, wanted, clock=Clock(), gap=0.001, searched=searched)
    found = mix(searched, sized, wanted, clock=Clock())
    assert found is not None
    return found


def cheapest(rates: dict[str, list[float]], wanted: Wanted) -> float:
    """The least money of all numbers up to twelve of each kind."""
    best = float("inf")
    for numbers in product(range(13), repeat=len(KINDS)):
        usd = sum(n * rates[f"{kind} usd"][0] for n, kind in zip(numbers, KINDS, strict=True))
        after = (
            sum(
                rates[kind][max(0, n - lost.count(kind))]
                for n, kind in zip(numbers, KINDS, strict=True)
            )
            for lost in combinations_with_replacement(KINDS, wanted.spare)
        )
        if usd < best and min(after) >= wanted.peak_rate:
            best = usd
    return best


@pytest.mark.parametrize("spare", [0, 1, 2])
@pytest.mark.parametrize("rate", [40.0, 130.0])
def test_no_numbers_cost_less(rates: dict[str, list[float]], rate: float, spare: int) -> None:
    wanted = Wanted(rate, 1.3, spare)
    found, best = asked(wanted), cheapest(rates, wanted)
    assert best < float("inf")
    assert found.usd_per_hour == pytest.approx(best, rel=1e-9)
    assert found.bound_usd_per_hour <= best * (1 + 1e-9)
    assert found.gap is not None
    assert found.gap < 1e-9
    left = [
        sum(rates[kind][max(0, n - lost.count(kind))] for kind, n in found.units.items())
        for lost in combinations_with_replacement(KINDS, spare)
    ]
    assert found.carried_requests_per_s == pytest.approx(min(left))
    assert found.carried_requests_per_s >= wanted.peak_rate
    assert found.headroom == pytest.approx(min(left) / wanted.peak_rate - 1)


def test_chips_that_are_lost_take_the_fewest_units_that_hold_them() -> None:
    """Sixteen chips: a unit of 32 or two of eight, whatever leaves least."""
    kinds, sizes, most = ("gh200-nvl32", "hgx-h100"), (32, 8), (3, 9)
    scenario = SCENARIO.model_copy(update={"cluster": kinds[0]})
    wanted = Wanted(60.0, spare_chips=16)
    searched: dict[str, Units] = {}
    sized = size(scenario, kinds, wanted, clock=Clock(), gap=0.001, searched=searched)
    found = mix(searched, sized, wanted, clock=Clock())
    assert found is not None
    rates = [
        [0.0, *(searched[kind].carried(n).requests_per_s for n in range(1, top + 1))]
        for kind, top in zip(kinds, most, strict=True)
    ]
    ranges = [range(top + 1) for top in most]
    losses = [
        lost
        for lost in product(*ranges)
        if (chips := sum(n * size for n, size in zip(lost, sizes, strict=True))) >= 16
        and all(chips - size < 16 for n, size in zip(lost, sizes, strict=True) if n)
    ]
    assert sorted(losses) == [(0, 2), (1, 0)]
    best = min(
        sum(n * searched[kind].usd_per_hour for n, kind in zip(numbers, kinds, strict=True))
        for numbers in product(*ranges)
        if all(
            sum(own[max(0, n - gone)] for own, n, gone in zip(rates, numbers, lost, strict=True))
            >= wanted.peak_rate
            for lost in losses
        )
    )
    assert found.usd_per_hour == pytest.approx(best)


def test_parts_of_a_coarse_kind_are_served_by_a_fine_one(rates: dict[str, list[float]]) -> None:
    """Two nodes of eight B200 and one of H100 carry what takes three of B200 alone."""
    found = asked(Wanted(130.0), KINDS[:2])
    assert found.units == {"hgx-b200": 2, "hgx-h100": 1}
    assert found.one_kind_usd_per_hour == pytest.approx(3 * rates["hgx-b200 usd"][0])
    assert found.usd_per_hour < found.one_kind_usd_per_hour
    tokens = 130.0 * 200 * 3600 / 1e6
    assert found.usd_per_m_output_tokens == pytest.approx(found.usd_per_hour / tokens)


def test_time_that_is_over_leaves_one_kind() -> None:
    wanted, searched = Wanted(130.0), dict[str, Units]()
    sized = size(SCENARIO, KINDS[:2], wanted, clock=Clock(), searched=searched)
    clock = Clock()
    clock.stop()
    found = mix(searched, sized, wanted, clock=clock)
    assert found is not None
    assert (
        found.usd_per_hour == found.one_kind_usd_per_hour == min(one.usd_per_hour for one in sized)
    )
    assert found.bound_usd_per_hour < found.usd_per_hour


def test_units_that_carry_nothing_at_all_are_too_few() -> None:
    """Traffic whose targets no layout on one node meets ended with a division by zero."""

    class Steep(Units):
        def fitting(self, units: int) -> Capability:
            rate = 3.0 * units if units >= 3 else 0.0
            found = Capability(units, rate, rate, Layout(replicas=()))
            return self.known.setdefault(units, found)

        def first(self, peak: float) -> Capability:
            return self.fitting(1)

        def carried(self, units: int, gap: float | None = None) -> Capability:
            return self.known[units]

    found = _sized(Steep(SCENARIO, KINDS[0], Clock(), 0.01, 0), KINDS[0], Wanted(9.5, spare=1))
    assert (found.count, found.least) == (5, 5)
