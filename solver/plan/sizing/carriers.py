"""What numbers of units of one kind are likely to carry of a mix's requests, where replays judge: by what they were seen to carry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import replace
from math import inf, isfinite, log, sqrt

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replay.fleet import Tables
from solver.plan.sizing.for_traffic import TrafficUnits, any_layout, highest
from solver.plan.sizing.mix import Kind
from solver.plan.sizing.mix_replay import Part, TrafficDraws
from solver.plan.sizing.size import Sized, Wanted
from solver.traffic.asked import Asked
from solver.traffic.judge import meets_targets
from solver.verify import ROUNDING
from topology.errors import NoFeasibleLayout

#: requests of a share at least, where the traffic as it is gives them
_FEWEST = 500
#: what one kind alone carries at most of the peak on fewer units than it needs
_NOT_ALL = 0.999


class Carrier(ABC):
    """One kind. ``met``: requests/s that so many units were seen to carry; ``missed``: that they were seen to miss."""

    #: part of a rate that was missed which is tried next; times what was met that may be met at most
    less: float
    more: float
    #: whether what units were seen to carry is the most that their layout does
    exact = False

    def __init__(self, kind: Kind, one: Sized, wanted: Wanted) -> None:
        self.kind, self.peak = kind, wanted.peak_rate
        self.met: dict[int, float] = {}
        self.missed: dict[int, float] = {}
        #: how often: each time more is taken off
        self.times: Counter[int] = Counter()
        #: so many carry all of the peak
        self.enough = None if one.count is None else one.count - one.spare

    def reference(self, units: int) -> float:
        """Requests/s of which what units carry is a part: what no layout exceeds."""
        each = self.kind.each if isfinite(self.kind.each) else 1.0
        return self.kind.units.bounds().get(units, units * each)

    @abstractmethod
    def knows(self, units: int, rate: float) -> bool:
        """Whether there is a layout for so many units at such a rate, or none is to be had."""

    @abstractmethod
    def learn(self, units: int, rate: float) -> None:
        """Look for a layout of so many units for such a rate."""

    @abstractmethod
    def part(self, units: int, rate: float) -> Part:
        """So many units with the best layout that was found for them or fewer, at such a rate."""

    def miss(self, units: int, rate: float) -> None:
        """Note that a replay of their part missed a target."""
        self._miss(units, rate)
        if self.enough is not None and units >= self.enough:
            self.enough = None
        if best := self._best(units):
            self.met[best] = min(self.met[best], self._less(units))

    def likely(self) -> list[float]:
        """Requests/s that none, one, two ... units are likely to carry."""
        table = [0.0]
        for units, most in enumerate(self.kind.most()[1:], start=1):
            best = self._best(units)
            guess = max(min(self._guess(units), most), self.met[best] if best else 0.0)
            if self.enough is not None and units >= self.enough:
                guess = max(guess, self.peak)
            else:
                guess = min(guess, _NOT_ALL * self.peak)
            table.append(max(guess, table[-1]))
        return table

    def carried(self) -> list[float]:
        """Requests/s that none, one, two ... units were found to carry."""
        best = [self._best(n) for n in range(self.kind.count + 1)]
        return [self.met[n] if n else 0.0 for n in best]

    def _miss(self, units: int, rate: float) -> None:
        self.missed[units] = min(rate, self.missed.get(units, rate))
        self.times[units] += 1

    def _less(self, units: int) -> float:
        """What is tried next on so many units that missed a target."""
        return self.missed[units] * self.less ** max(1, self.times[units])

    def _best(self, units: int) -> int | None:
        """Which number of at most so many units was seen to carry most."""
        return max(
            (n for n in self.met if n <= units), key=lambda n: (self.met[n], n), default=None
        )

    def _guess(self, units: int) -> float:
        """That part of the reference which other numbers were seen to carry, halfway to what was missed."""
        if self.exact and units in self.met:
            return self.met[units]
        parts = [rate / self.reference(n) for n, rate in self.missed.items() if self.reference(n)]
        if self.met:
            near = min(self.met, key=lambda n: (abs(log(n / units)), n))
            low = min(1.0, self.met[near] / (self.reference(near) or inf))
            # none was missed: so much may be met as the layout carries at all
            high = min((one for one in parts if one > low), default=1.0 / low)
            part = min(sqrt(low * min(high, self.more * low)), max(low, self.less))
        else:
            part = self.less * min(parts, default=1.0)
        guess = part * self.reference(units)
        return min(guess, self._less(units)) if units in self.missed else guess


class RandomCarrier(Carrier):
    """Even arrivals' layouts under random ones: numbers of one kind were replayed at the peak."""

    less, more = 0.97, inf

    def __init__(self, kind: Kind, one: Sized, wanted: Wanted) -> None:
        super().__init__(kind, one, wanted)
        for seen in one.replays:
            (self.met if seen.meets else self.missed)[seen.units] = self.peak

    def reference(self, units: int) -> float:
        """What their layout carries of even arrivals; before it is searched, what none exceeds."""
        known = self.kind.units.known.get(units)
        return super().reference(units) if known is None else known.requests_per_s

    def carried(self) -> list[float]:
        """Those that come evenly."""
        return self.kind.least()

    def knows(self, units: int, rate: float) -> bool:
        """Whether the number was searched."""
        return units <= self.kind.unfit or units in self.kind.units.known

    def learn(self, units: int, rate: float) -> None:
        """Search the number."""
        self.kind.search(units)

    def part(self, units: int, rate: float) -> Part:
        """The layout for even arrivals."""
        own = self.kind.units
        number = units if units in own.known else self._best(units) or units
        return Part(self.kind.name, units, rate, own.instance(number), own.carried(number).layout)


class TrafficCarrier(Carrier):
    """Layouts for a share of some traffic, each found for the share that it was likely to carry."""

    less, more, exact = 0.95, 1.06, True

    def __init__(self, kind: Kind, one: Sized, wanted: Wanted, draws: TrafficDraws) -> None:
        super().__init__(kind, one, wanted)
        assert isinstance(kind.units, TrafficUnits)
        self.units, self.draws, self.searches = kind.units, draws, 0
        self.found: dict[int, tuple[Instance, Layout, Tables]] = {}
        for n, instance in self.units.answered.items():
            known = self.units.known[n]
            self._keep(n, instance, known.layout)
            self.met[n] = known.requests_per_s
        self.missed = dict.fromkeys(self.units.missed, self.peak)

    def knows(self, units: int, rate: float) -> bool:
        """Whether so many units, or fewer, were seen to carry what they can."""
        best = self._best(units)
        return units in self.met or (best is not None and self.met[best] >= rate)

    def learn(self, units: int, rate: float) -> None:
        """Search a layout for so many units with a share of so many requests/s, and what share it carries at most."""
        if self.units.most(units) < rate * (1 - ROUNDING):
            return  # that is known from now on
        self.searches += 1
        own = self.units
        try:
            found = any_layout(own.instance(units).scenario, self._share(rate), own.clock, own.seed)
        except NoFeasibleLayout:
            self._miss(units, rate)
            return
        assert found.instance is not None
        self._keep(units, found.instance, found.layout)
        self.met[units] = self._carries(units, rate)

    def part(self, units: int, rate: float) -> Part:
        """The layout that carries most."""
        best = self._best(units)
        assert best is not None
        return Part(self.kind.name, units, rate, *self.found[best])

    def _keep(self, units: int, instance: Instance, layout: Layout) -> None:
        self.found[units] = instance, layout, Tables(self.units.asked.requests.longest)

    def _share(self, rate: float) -> Asked:
        """The traffic of which chance deals so many requests/s to this kind."""
        asked, share = self.units.asked, min(1.0, rate / self.peak)
        whole = asked.requests
        if share * len(whole) < _FEWEST:
            whole = self.draws.of_share(-2, share)
        own = whole.split((share, 1.0 - share), self.units.seed)[0]
        return replace(asked, requests=own.at_rate(share * self.peak))

    def _carries(self, units: int, rate: float) -> float:
        """The highest share found, in requests/s, whose replay meets the targets."""
        instance, layout, tables = self.found[units]
        targets, course = self.draws.targets, self.draws.course(instance)

        def meets(rate: float) -> bool:
            share = rate / self.peak
            whole = self.draws.of_share(-1, share)
            own = whole.split((share, 1.0 - share), self.units.seed)[0]
            return meets_targets(instance, layout, own, targets, course, tables)

        steady = evaluate(instance, layout).priced.requests_per_s
        most = min(self.units.most(units), self.peak)
        return highest(meets, rate, max(rate, min(steady, most)), self.units.clock)
