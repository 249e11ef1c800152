r"""Where KV lies, decided: the best layout under every plan, and a bound over all of them.

A plan (:class:`solver.kv_plan.KvPlan`) fixes the places of KV for a whole layout; the search for the best
layout under it is the ordinary one. The rent of a conversation is the same whatever the fleet
(``hold_s * bytes * usd_per_byte_hour``, bytes counted once), so that layouts which keep a share of at least
``f`` of them cost their chips' money plus ``f`` rents per request at least. Where rent matters, shares from 0 to 1
are cut into ranges and each is a plan of its own. The least bound over all plans, rent included, bounds every
layout. Plans are taken in the order of their first bounds, and one is left as soon as its bound shows that it
cannot be better by more than the gap asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from costmodel.layout.layout import KvTier
from costmodel.question.instance import Instance
from costmodel.replica.held import conversation_bytes
from solver.answer import Progress, SearchResult
from solver.certificate import Certificate
from solver.clock import Clock
from solver.kv_plan import KvPlan, under_plan
from solver.rounds import Search
from topology.errors import NoFeasibleLayout, NoLayoutInTime

_ALMOST = 1e-6

#: ranges that the share of conversations kept is cut into at most
_MOST_RANGES = 16


def kv_plans(instance: Instance) -> tuple[KvPlan, ...]:
    """Every plan that the scenario allows, all KV in HBM first.

    Caches in flight lie in HBM or, where no engine is named, in host memory (engines read them from HBM); idle
    KV in HBM, in any tier allowed, or nowhere.
    A tier that prompts are read from in every pass has no bandwidth left for reloads.
    """
    tiers = instance.scenario.kv_tiers
    host = "host" in tiers and instance.engine is None
    in_flight: tuple[KvTier, ...] = ("hbm", "host") if host else ("hbm",)
    idle: tuple[KvTier | None, ...] = (None,)
    if instance.workload.hold_s is not None:
        idle = (None, "hbm", *tiers)
    return tuple(
        KvPlan(prefill, generate, waits)
        for prefill in in_flight
        for generate in in_flight
        for waits in idle
        if waits is None or waits == "hbm" or waits != prefill
    )


def rent_usd_per_m(instance: Instance, plan: KvPlan) -> float:
    """Rent if every conversation is kept under a plan, in dollars per million output tokens."""
    place, hold = plan.idle, instance.workload.hold_s
    if place is None or place == "hbm" or hold is None:
        return 0.0
    tiers = [placed.chip.tier(place) for placed in instance.cluster.usable]
    price = min((t.charged_usd_per_byte_hour for t in tiers if t is not None), default=0.0)
    per_request = hold / 3600.0 * conversation_bytes(instance) * price
    return per_request / instance.workload.output_tokens * 1e6


@dataclass
class Planned:
    """One plan's search, its least rent, and the bound known so far ($/M output tokens, rent included).

    ``question``: the number of its question; ``usd``: cost of the layout found.
    """

    plan: KvPlan
    search: Search
    rent: float
    bound: float
    reason: str = ""
    question: int = 0
    usd: float | None = None


class PlanSearch:
    """The searches of all plans (or of some), and the best layout of any; a question without a choice of plans has one."""

    #: what there is a search for
    SEARCHED = "place of KV"

    def __init__(
        self,
        instance: Instance,
        *,
        clock: Clock,
        gap: float,
        seed: int,
        on_progress: Callable[[Progress], None] | None = None,
        plans: Sequence[KvPlan] | None = None,
        workers: int = 1,
    ):
        self.clock = clock
        self.target = max(gap, _ALMOST)
        self.on_progress = on_progress
        self.best: SearchResult | None = None
        self.best_search: Search | None = None
        self.best_usd = float("inf")
        self.best_question = 0
        self.first_s = 0.0
        self.trajectory: list[Progress] = []
        self.current: Planned | None = None
        self.all: list[Planned] = []
        self.gap, self.seed, self.workers = gap, seed, workers
        self.add(instance, kv_plans(instance) if plans is None else plans)

    def add(
        self,
        instance: Instance,
        plans: Sequence[KvPlan],
        number: int = 0,
        like: Search | None = None,
    ) -> None:
        """Bound every plan of a question; ``like``: a search that shares shapes and loads with it."""
        clock, gap, seed, workers = self.clock, self.gap, self.seed, self.workers
        for plan in plans:
            if clock.over:
                raise clock.late(f"every {self.SEARCHED} was bounded")
            here = under_plan(instance, plan)
            whole = Search(here, clock, gap, seed, self._relay, like, workers)
            like = like or whole
            bound, rent = whole.first_bound_usd(), rent_usd_per_m(instance, plan)
            ranges = 1
            if 0 < bound < float("inf"):
                ranges = min(_MOST_RANGES, max(1, round(2.0 * rent / (self.target * bound))))
            for part in range(ranges):
                search = whole
                ranged = replace(plan, kept=(part + 1) / ranges, least_kept=part / ranges)
                if part + 1 < ranges:
                    narrowed = under_plan(instance, ranged)
                    search = Search(narrowed, clock, gap, seed, self._relay, like, workers)
                    bound = search.first_bound_usd()
                else:
                    bound = whole.first_bound_usd()
                least = rent * ranged.least_kept
                self.all.append(Planned(ranged, search, least, bound + least, question=number))

    def words(self, planned: Planned, *, idle: bool = True) -> str:
        """What a search is of."""
        return (planned.plan if idle else replace(planned.plan, idle=None)).words()

    @property
    def bound(self) -> float:
        """Proven for every layout under every plan."""
        return min(planned.bound for planned in self.all)

    def run(self) -> SearchResult:
        """The best layout. Raises as :func:`solver.search.search`."""
        late: NoLayoutInTime | None = None
        for planned in sorted(self.all, key=lambda planned: planned.bound):
            if planned.bound == float("inf"):
                planned.reason = planned.search.why()
                continue
            if planned.bound >= self._enough or (self.clock.over and self.best is not None):
                continue
            try:
                self._try(planned)
            except NoFeasibleLayout as failure:
                planned.reason = str(failure)
                if failure.proven:
                    planned.bound = float("inf")
            except NoLayoutInTime as failure:
                late = failure
        if self.best is not None:
            return self.result(self.best)
        if late is not None:
            raise late
        raise NoFeasibleLayout(self._why(), proven=self.bound == float("inf"))

    @property
    def _enough(self) -> float:
        return self.best_usd / (1.0 + self.target)

    def _try(self, planned: Planned) -> None:
        self.current = planned
        found = planned.search.run(self._enough - planned.rent)
        planned.bound = max(planned.bound, planned.search.bound_usd + planned.rent)
        if found is None:
            return
        cost = found.evaluation.usd_per_m_output_tokens
        assert cost is not None
        planned.usd = cost
        if cost < self.best_usd:
            if self.best is None:
                self.first_s = found.first_layout_s
            self.best, self.best_usd, self.best_search = found, cost, planned.search
            self.best_question = planned.question

    def _relay(self, progress: Progress) -> None:
        """Progress of one plan's search as progress of all."""
        planned = self.current
        if planned is None:
            return
        if progress.bound is not None:
            planned.bound = max(planned.bound, progress.bound + planned.rent)
        incumbent = self.best_usd
        if progress.incumbent is not None:
            incumbent = min(incumbent, progress.incumbent + planned.rent)
        known = incumbent < float("inf")
        relayed = Progress(
            elapsed_s=progress.elapsed_s,
            incumbent=incumbent if known else None,
            bound=self.bound,
            gap=max(0.0, incumbent / self.bound - 1.0) if known else None,
            doing=f"{self.words(planned)}: {progress.doing}",
        )
        self.trajectory.append(relayed)
        if self.on_progress is not None:
            self.on_progress(relayed)

    def snapshot(self) -> SearchResult | None:
        """The best layout of the plans searched so far, from any thread while the search runs."""
        return None if self.best is None else self.result(self.best)

    def result(self, best: SearchResult) -> SearchResult:
        """The best layout with the bound over all plans."""
        bound = min(self.bound, self.best_usd)
        gap = self.best_usd / bound - 1.0
        proven = gap <= self.target
        return replace(
            best,
            status="optimal" if proven else "feasible",
            certificate=Certificate(bound, gap, best.certificate.covers),
            wall_s=self.clock.elapsed_s,
            first_layout_s=self.first_s,
            proof_s=self.clock.elapsed_s if proven else None,
            shapes=sum(planned.search.num_shapes for planned in self.all),
            trajectory=tuple(self.trajectory),
        )

    def _why(self) -> str:
        """Why nothing fits, each reason once, with the first plan that it stops."""
        reasons: dict[str, str] = {}
        for planned in self.all:
            reasons.setdefault(planned.reason, self.words(planned, idle=False))
        if len(reasons) == 1:
            return next(iter(reasons))
        return ". ".join(f"With {where}: {reason}" for reason, where in reasons.items())
