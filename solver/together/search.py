"""The search for layouts of several models on one cluster: each model alone, then one fleet model over all of them.

1. Each model is searched alone on the whole cluster: what it costs at least, and shapes that were placed. Where one does
not fit alone, the answer is why. 2. Fleets of all models by the bounds of their shapes: their cost is a bound on every
division of the chips. 3. Shapes in them are placed, which lowers their bounds. 4. Fleets of placed shapes, dealt to named
chips and judged, are the answer. Repeat from 2 until the gap asked for is proven. Where no division is found so (pools
that the model does not tell apart), models are searched one after another on what the others leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from costmodel.layout.layout import Layout
from costmodel.together.judge import Judged, judge
from costmodel.together.question import Models
from solver.bounds.apart import cost_per_rate_bound, rate_bound
from solver.clock import Clock, check_seed
from solver.fleet.asked import Fleet
from solver.fleet.items import Item
from solver.fleet.model import Effort
from solver.place.assemble import assemble
from solver.place.mend import mended
from solver.search import searched
from solver.shapes.pools import Pool
from solver.together.alone import Alone, OnProgress
from solver.together.divided import Divided, gap_of, money_alone
from solver.together.model import Division, least_money, most_headroom
from solver.verify import ROUNDING
from topology.errors import NoFeasibleLayout, NoLayoutInTime, VerificationError
from topology.quantity import figure

#: seconds of one solve over all models at most
_LIMIT_S = 20.0
#: rounds of placing shapes that are in no bound's fleet
_HOPES = 16


def search_together(
    models: Models,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
    workers: int = 1,
    on_progress: OnProgress | None = None,
) -> Divided:
    """The cheapest division of the chips found (or the one with most headroom), with a proven bound.

    Raises ``NoFeasibleLayout`` with the reason by model, ``NoLayoutInTime``, ``VerificationError`` on a bug.
    """
    check_seed(seed)
    alone = Alone(models, clock, gap, seed, workers, on_progress)
    return _Rounds(alone).run()


class _Rounds:
    """Rounds over all models together."""

    def __init__(self, alone: Alone):
        self.alone, self.models, self.clock = alone, alone.models, alone.clock
        self.searches = alone.searches
        self.classes = self.searches[0].classes
        self.factor = self.models.asked.prices.chip_price_factor
        self.layouts: tuple[Layout, ...] | None = None
        self.judged: Judged | None = None
        self.bound = self._first_bound()
        self.clock.kept = self.snapshot

    def run(self) -> Divided:
        """Bounding, placing and judging until the gap is proven or time is up."""
        self._refuse_proven()
        hopes = 0
        while True:
            division = self._divide([one.items.best() for one in self.searches])
            self._tighten(division)
            self._refuse_proven()
            self._try(self._divide([one.placed.achieved() for one in self.searches]))
            if self.gap <= max(self.alone.gap, ROUNDING) or self.clock.over:
                break
            fresh = self._fresh(division)
            if not any(fresh) and hopes < _HOPES:
                hoped = self._divide([one.hoped() for one in self.searches])
                fresh, hopes = self._unplaced(hoped), hopes + 1
            if not any(fresh):
                break
            for search, rows in zip(self.searches, fresh, strict=True):
                search.place(rows)
        if self.judged is None or self.gap > max(self.alone.gap, ROUNDING):
            self._one_after_another()
        return self._finish()

    @property
    def gap(self) -> float:
        """Of the answer so far, to the bound."""
        return float("inf") if self.judged is None else gap_of(self.models, self.judged, self.bound)

    def _first_bound(self) -> float:
        """What models alone prove: the sum of their least money, or the factor that the chips' money allows."""
        if self.models.whole:
            return self._most_factor()
        return sum(money_alone(self.models, at, one) for at, one in enumerate(self.alone.answers))

    def _most_factor(self) -> float:
        """A factor of all rates that the chips' money, and each model's relaxation alone, does not exceed."""
        least, most = 0.0, float("inf")
        for search, rate in zip(self.searches, self.models.rates, strict=True):
            items, links = search.items.best(), search.question.links
            least += cost_per_rate_bound(items, self.classes, links) * rate * self.factor
            most = min(most, rate_bound(items, self.classes, links)[0] / rate)
        return min(most, self.models.whole_usd_per_hour / least)

    def _refuse_proven(self) -> None:
        """Raise where the bound shows that no division serves the rates."""
        limit = 1.0 if self.models.whole else self.models.whole_usd_per_hour
        over = self.bound < limit * (1 - ROUNDING) if self.models.whole else (
            self.bound > limit * (1 + ROUNDING)
        )  # fmt: skip
        if over:
            raise NoFeasibleLayout(self._why(), proven=True)

    def _why(self) -> str:
        """Which money each model needs alone, what the cluster has, and how far rates are too high."""
        needs = [
            f"{name} at least ${money_alone(self.models, at, one):,.2f}/h for {figure(rate, 6)} requests/s"
            for at, (name, one, rate) in enumerate(
                zip(self.models.names, self.alone.answers, self.models.rates, strict=True)
            )
        ]
        cluster = self.models.instances[0].cluster
        most = self._most_factor()
        items = [one.items.best() for one in self.searches]
        questions = [one.question for one in self.searches]
        proven = most_headroom(items, self.classes, questions, most, self._effort()).bound
        most = most if proven is None else min(most, proven)
        return (
            f"each model fits alone, but not all together on {cluster.name}: of its {len(cluster.usable)} chips "
            f"(${self.models.whole_usd_per_hour:,.2f}/h) {', '.join(needs)}. No division of the chips serves more than "
            f"{figure(most, 3, 'up')} times these rates"
        )

    def _effort(self) -> Effort:
        remaining = self.clock.remaining_s
        limit_s = _LIMIT_S if remaining == float("inf") else min(_LIMIT_S, max(0.2, remaining / 3))
        return Effort(self.clock, limit_s, self.alone.seed, self.alone.gap / 10)

    def _divide(self, items: Sequence[Sequence[Item]]) -> Division:
        """The best fleets of some items."""
        questions = [one.question for one in self.searches]
        if self.models.whole:
            return most_headroom(items, self.classes, questions, self.bound, self._effort())
        return least_money(items, self.classes, questions, self._effort())

    def _tighten(self, division: Division) -> None:
        """Raise the bound (or lower the largest factor) to what a division of bounded shapes proves."""
        if division.bound is None:
            return
        if self.models.whole:
            self.bound = min(self.bound, division.bound)
        else:
            self.bound = max(self.bound, division.bound * self.factor)

    def _fresh(self, division: Division) -> list[list[int]]:
        """Rows of each model's shapes to place next: those of a bound's fleets, else siblings that might be better."""
        fresh = self._unplaced(division)
        if any(fresh) or division.fleets is None:
            return fresh
        return [
            search.promising(fleet.shapes)
            for search, fleet in zip(self.searches, division.fleets, strict=True)
        ]

    def _unplaced(self, division: Division) -> list[list[int]]:
        if division.fleets is None:
            return [[] for _ in self.searches]
        return [
            sorted(fleet.shapes - set(search.placed.realised))
            for search, fleet in zip(self.searches, division.fleets, strict=True)
        ]

    def _try(self, division: Division) -> None:
        """Deal fleets to named chips, and keep the layouts if the judge accepts them and finds them better."""
        if division.fleets is None:
            return
        layouts = self._assembled(division.fleets)
        if layouts is not None:
            self._keep(layouts)

    def _assembled(self, fleets: Sequence[Fleet]) -> tuple[Layout, ...] | None:
        """Layouts of all fleets, each on chips that those before it left."""
        used: set[str] = set()
        layouts = []
        for search, fleet in zip(self.searches, fleets, strict=True):
            stands = tuple(
                (item, tuple(_left(pool, used) for pool in pools)) for item, pools in fleet.stands
            )
            layout = assemble(search.instance, replace(fleet, stands=stands), search.placed)
            layouts.append(layout)
            used |= {chip for replica in layout.replicas for chip in replica.chips}
        return tuple(layouts)

    def _keep(self, layouts: tuple[Layout, ...]) -> None:
        judged = judge(self.models, layouts)
        if judged.violations:
            left = [
                mended(instance, layout, evaluation)
                for instance, layout, evaluation in zip(
                    judged.instances, layouts, judged.evaluations, strict=True
                )
            ]
            if any(one is None for one in left):
                return
            layouts = tuple(one[0] for one in left if one is not None)
            judged = judge(self.models, layouts)
            if judged.violations:
                return
        if self.judged is None or self._better(judged, self.judged):
            self.layouts, self.judged = layouts, judged

    def _better(self, one: Judged, other: Judged) -> bool:
        if self.models.whole:
            return one.headroom > other.headroom * (1 + ROUNDING)
        return one.usd_per_hour < other.usd_per_hour * (1 - ROUNDING)

    def _one_after_another(self) -> None:
        """Each model on what the others leave, those that cost most first and those that cost least first."""
        order = sorted(
            range(len(self.searches)),
            key=lambda at: -money_alone(self.models, at, self.alone.answers[at]),
        )
        for turn in (order, order[::-1]):
            if self.clock.over and self.judged is not None:
                return
            layouts = self._in_turn(turn)
            if layouts is not None:
                self._keep(layouts)

    def _in_turn(self, turn: Sequence[int]) -> tuple[Layout, ...] | None:
        found: dict[int, Layout] = {turn[0]: self.alone.answers[turn[0]].layout}
        for at in turn[1:]:
            taken = {
                c for layout in found.values() for replica in layout.replicas for c in replica.chips
            }
            if len(taken) >= len(self.models.instances[at].cluster.usable):
                return None
            instance = self.models.beside(at, sorted(taken))
            try:
                answer, _, _ = searched(
                    instance, self.clock, self.alone.gap, self.alone.seed,
                    self.alone.telling(self.models.names[at]), lambda _: None, self.alone.workers,
                )  # fmt: skip
            except (NoFeasibleLayout, NoLayoutInTime):
                return None
            found[at] = answer.layout
        return tuple(found[at] for at in range(len(self.searches)))

    def snapshot(self) -> Divided | None:
        """The best layouts so far with their proven gap."""
        if self.judged is None or self.layouts is None:
            return None
        found = self.judged.headroom if self.models.whole else self.judged.usd_per_hour
        over = found / self.bound if self.models.whole else self.bound / found
        if over > 1 + ROUNDING:
            raise VerificationError("layouts are better than the bound on all of them")
        return Divided(
            models=self.models,
            layouts=self.layouts,
            judged=self.judged,
            bound=found if over > 1 else self.bound,
            target=self.alone.gap,
            alone=tuple(self.alone.answers),
            seed=self.alone.seed,
            wall_s=self.clock.elapsed_s,
        )

    def _finish(self) -> Divided:
        found = self.snapshot()
        if found is None:
            if self.clock.over:
                raise self.clock.late("the first verified layouts of all models")
            raise NoFeasibleLayout(
                f"no division of the chips was found: {self._why()}", proven=False
            )
        return found


def _left(pool: Pool, used: set[str]) -> Pool:
    return replace(pool, chips=tuple(chip for chip in pool.chips if chip not in used))
