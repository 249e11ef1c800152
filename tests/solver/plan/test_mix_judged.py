"""A mix for traffic: split and replayed from scratch after every loss, and no numbers cost less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Limits, Workload
from costmodel.replay.replay import replay
from costmodel.replay.targets import Targets
from solver.clock import Clock
from solver.plan.sizing.carried import Units
from solver.plan.sizing.for_traffic import BEYOND, TrafficUnits
from solver.plan.sizing.mix import Mix
from solver.plan.sizing.mix_judged import mix_for_traffic
from solver.plan.sizing.size import Sized, Wanted
from solver.traffic.asked import Asked
from tests.solver.traffic.few_draws import few_draws

#: kinds, and the units of each that carry the peak alone
KINDS = {"hgx-b200": 3, "hgx-h100": 5}
PEAK, TTFT_S, TPOT_S = 110.0, 2.0, 0.05
SCENARIO = Scenario(
    model="llama-3.1-70b", cluster="hgx-b200", workload=Workload(input_tokens=800, output_tokens=17),
    limits=Limits(prefill_chunk_tokens=4096),
)  # fmt: skip


def trace(seed: int, count: int = 2000) -> Requests:
    """Unlike lengths at random times."""
    rng = np.random.default_rng(seed)
    return Requests(
        np.cumsum(rng.exponential(1.0, count)), rng.integers(200, 1500, count), rng.integers(5, 30, count),
        np.zeros(count, dtype=np.int64),
    ).at_rate(PEAK)  # fmt: skip


ASKED = Asked(trace(3), Targets(TTFT_S, TPOT_S))


@dataclass
class Searched:
    """Each kind alone, and the mix that may lose so many units, by that number."""

    units: dict[str, TrafficUnits]
    alone: dict[int, list[Sized]]
    mixes: dict[int, Mix]


@pytest.fixture(scope="module")
def searched() -> Iterator[Searched]:
    """Searches confirm layouts on the fewest draws that they may: what is found is replayed here anyway."""
    with few_draws():
        yield _searched()


def _searched() -> Searched:
    units = {kind: TrafficUnits(SCENARIO, kind, Clock(), 0.01, 0, ASKED) for kind in KINDS}
    known: dict[str, Units] = {**units}
    alone, mixes = {}, {}
    for spare in (0, 1):
        alone[spare] = [sized(units[kind], kind, spare) for kind in KINDS]
        found = mix_for_traffic(known, alone[spare], Wanted(PEAK / 2, 2.0, spare), clock=Clock())
        assert found is not None
        mixes[spare] = found
    return Searched(units, alone, mixes)


def sized(units: TrafficUnits, kind: str, spare: int) -> Sized:
    carried, count = units.carried(KINDS[kind]).requests_per_s, KINDS[kind] + spare
    assert carried >= PEAK
    usd = count * units.usd_per_hour
    return Sized(
        kind, 8, count, 1, count, spare, carried, carried / PEAK - 1, usd, 1.0, 0.0, "", ()
    )


def late(requests: Requests, ttft: np.ndarray, tpot: np.ndarray) -> tuple[float, float]:
    """Shares of requests beyond each target."""
    assert len(requests) == len(ttft)
    return float((ttft > TTFT_S).mean()), float((tpot > TPOT_S).mean())


def dealt(requests: Requests, shares: list[float], seed: int) -> list[Requests]:
    """Each request to a share, by one number of the seed's each."""
    drawn = np.random.default_rng([seed, len(requests)]).random(len(requests))
    to = [
        next((k for k in range(len(shares)) if at < sum(shares[: k + 1])), len(shares) - 1)
        for at in drawn
    ]
    return [requests.rows(np.flatnonzero(np.array(to) == k)) for k in range(len(shares))]


@pytest.mark.parametrize("spare", [0, 1])
def test_a_mix_costs_less_and_every_loss_was_replayed(searched: Searched, spare: int) -> None:
    found = searched.mixes[spare]
    assert len(found.units) == 2
    prices = {kind: one.usd_per_hour for kind, one in searched.units.items()}
    assert found.usd_per_hour == pytest.approx(
        sum(n * prices[kind] for kind, n in found.units.items())
    )
    assert found.one_kind_usd_per_hour == min(one.usd_per_hour for one in searched.alone[spare])
    assert found.bound_usd_per_hour <= found.usd_per_hour < found.one_kind_usd_per_hour
    lost = [seen.lost for seen in found.replays]
    assert (
        sorted(map(str, lost)) == sorted(str({kind: 1}) for kind in found.units)
        if spare
        else lost == [{}]
    )
    for seen in found.replays:
        left = {kind: n - seen.lost.get(kind, 0) for kind, n in found.units.items()}
        assert {one.part.kind: one.part.units for one in seen.parts} == {
            k: n for k, n in left.items() if n
        }
        assert sum(one.part.requests_per_s for one in seen.parts) == pytest.approx(PEAK)
        for one in seen.parts:
            assert one.part.requests_per_s == pytest.approx(one.share * PEAK)
            chips = {chip for replica in one.part.layout.replicas for chip in replica.chips}
            assert len(chips) <= 8 * one.part.units
            assert len(one.part.instance.cluster.chips) <= 8 * one.part.units
            judged = evaluate(one.part.instance, one.part.layout)
            assert not judged.violations
            assert judged.priced.requests_per_s >= one.part.requests_per_s


@pytest.mark.parametrize("spare", [0, 1])
def test_what_is_said_of_the_replays_is_met_from_scratch(searched: Searched, spare: int) -> None:
    for seen in searched.mixes[spare].replays:
        shares = [one.share for one in seen.parts]
        judged, worst = 0, np.zeros(2)
        for draw in range(2):
            least = min(100_000, int(np.ceil(2000 / min(shares))))
            whole = ASKED.another(0, BEYOND + draw, least)
            ttft, tpot = [], []
            for one, own in zip(seen.parts, dealt(whole, shares, draw), strict=True):
                met = replay(one.part.instance, one.part.layout, own)
                assert max(late(own, met.ttft, met.tpot)) <= 0.01
                ttft += met.ttft.tolist()
                tpot += met.tpot.tolist()
            judged += len(ttft)
            # the least that 99 % of all requests do not exceed
            rank = int(np.ceil(0.99 * len(ttft))) - 1
            worst = np.maximum(worst, [sorted(ttft)[rank], sorted(tpot)[rank]])
        assert seen.requests == judged
        assert (seen.ttft_p99_s, seen.tpot_p99_s) == pytest.approx(tuple(worst))
        assert seen.goodput >= 0.98


def test_other_requests_meet_the_targets_too(searched: Searched) -> None:
    """Drawn by no code of the search, and dealt out by another generator."""
    for seen in searched.mixes[1].replays:
        whole = trace(77, 12_000)
        to = np.random.RandomState(5).choice(
            len(seen.parts), len(whole), p=[one.share for one in seen.parts]
        )
        for k, one in enumerate(seen.parts):
            own = whole.rows(np.flatnonzero(to == k))
            met = replay(one.part.instance, one.part.layout, own)
            assert max(late(own, met.ttft, met.tpot)) <= 0.01 + 3 * (0.01 / len(own)) ** 0.5


@pytest.mark.parametrize("spare", [0, 1])
def test_no_numbers_cost_less(searched: Searched, spare: int) -> None:
    """All cheaper numbers of both kinds: each is proven too few after some loss."""
    found, units = searched.mixes[spare], searched.units
    prices = [units[kind].usd_per_hour for kind in KINDS]
    most = {
        kind: [0.0, *(units[kind].most(n) for n in range(1, KINDS[kind] + spare + 1))]
        for kind in KINDS
    }
    bound = min(
        sum(n * usd for n, usd in zip(numbers, prices, strict=True))
        for numbers in product(*(range(KINDS[kind] + spare + 1) for kind in KINDS))
        if all(
            sum(
                most[kind][max(0, n - lost.count(kind))]
                for kind, n in zip(KINDS, numbers, strict=True)
            )
            >= PEAK
            for lost in combinations_with_replacement(KINDS, spare)
        )
    )
    # each number alone is bounded more closely than by what a unit carries at most
    assert found.bound_usd_per_hour <= bound * (1 + 1e-9)
    assert found.usd_per_hour >= bound * (1 - 1e-9)


def test_without_time_one_kind_is_the_answer(searched: Searched) -> None:
    clock = Clock()
    clock.stop()
    units: dict[str, Units] = {**searched.units}
    found = mix_for_traffic(units, searched.alone[1], Wanted(PEAK / 2, 2.0, 1), clock=clock)
    assert found is not None
    assert found.usd_per_hour == found.one_kind_usd_per_hour
    assert found.replays == ()
    none = [replace(one, count=None) for one in searched.alone[1]]
    assert mix_for_traffic(units, none, Wanted(PEAK / 2, 2.0, 1), clock=clock) is None
