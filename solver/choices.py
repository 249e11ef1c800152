"""Options as choices: a search for each combination of values, and the cheapest answer with one certificate.

Every combination is bounded before the first is searched, and they are searched in the order of their bounds. A combination is
left as soon as its bound shows that it cannot be better by more than the gap asked for. What does not depend on values
(shapes, rates of links, loads and placements of experts) is worked out once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from costmodel.question.choices.options import Values, value_words
from costmodel.question.choices.resolved import alternatives
from costmodel.question.instance import Instance
from solver.answer import Chosen, Progress, SearchResult
from solver.certificate import Certificate
from solver.clock import Clock
from solver.kv_plan import KvPlan
from solver.kv_search import Planned, PlanSearch, kv_plans
from solver.rounds import Search

#: lines of one combination's certificate that are said of all combinations instead
_OWN_LINES = (
    "not covered: speculative decoding", "not covered: another number of drafted tokens",
    "not covered: KV outside HBM", "every pass of several attention ranks in two halves",
)  # fmt: skip


class ChoiceSearch(PlanSearch):
    """The searches of every combination of values of an instance's choices."""

    SEARCHED = "choice"

    def __init__(
        self,
        instance: Instance,
        *,
        clock: Clock,
        gap: float,
        seed: int,
        on_progress: Callable[[Progress], None] | None = None,
        workers: int = 1,
        check: Callable[[Instance], None],
    ):
        """``check`` raises ``InstanceError`` for a combination that no search covers."""
        self.values, self.questions = zip(*alternatives(instance), strict=True)
        for question in self.questions:
            check(question)
        super().__init__(
            self.questions[0], clock=clock, gap=gap, seed=seed, on_progress=on_progress,
            plans=plans_of(self.questions[0]), workers=workers,
        )  # fmt: skip
        for number, question in enumerate(self.questions[1:], start=1):
            self.add(question, plans_of(question), number, self._like(number))

    def _like(self, number: int) -> Search | None:
        """A search whose shapes, rates and loads are those of a combination: that of one with the same weights.

        With an engine, drafts count, too: they say how many sequences an exchange has room for.
        """

        def kept(values: Values) -> list[object]:
            named = self.questions[0].engine is not None
            return [values.get("weight_dtype"), values.get("drafts") if named else None]

        wanted = kept(self.values[number])
        return next(
            (one.search for one in self.all if kept(self.values[one.question]) == wanted), None
        )

    def words(self, planned: Planned, *, idle: bool = True) -> str:
        """What a search is of."""
        words = values_words(self.values[planned.question])
        several = len(plans_of(self.questions[planned.question])) > 1
        return f"{words}, {super().words(planned, idle=idle)}" if several else words

    def result(self, best: SearchResult) -> SearchResult:
        """The best layout with the bound over all combinations, and what each costs."""
        found = super().result(best)
        kept = [line for line in found.certificate.covers if not line.startswith(_OWN_LINES)]
        covers = (f"each of {choices_words(self.values)}, one value for all replicas, with:", *kept)
        beyond = "not covered: replicas with values of their own, and values that are no choice"
        certificate = found.certificate
        return replace(
            found,
            certificate=Certificate(
                certificate.bound_usd_per_m_output_tokens, certificate.gap, (*covers, beyond)
            ),
            instance=self.questions[self.best_question],
            choices=tuple(self._chosen(number) for number in range(len(self.values))),
        )

    def _chosen(self, number: int) -> Chosen:
        """What one combination costs so far."""
        own = [one for one in self.all if one.question == number]
        costs = [one.usd for one in own if one.usd is not None]
        bound = min(one.bound for one in own)
        cost = min(costs, default=None)
        reason = ""
        if cost is None:
            reason = next((one.reason for one in own if one.reason), "its bound is no better")
        return Chosen(
            self.values[number], cost, bound if cost is None else min(bound, cost), reason
        )


def retold(found: SearchResult) -> SearchResult:
    """The answer, after its runner-up may have taken its place, with what that costs as the chosen combination's."""
    best = min(found.choices, key=lambda one: one.usd_per_m_output_tokens or float("inf"))
    cost = found.evaluation.usd_per_m_output_tokens
    assert cost is not None
    bound = min(best.bound_usd_per_m_output_tokens, cost)
    own = replace(best, usd_per_m_output_tokens=cost, bound_usd_per_m_output_tokens=bound)
    return replace(found, choices=tuple(own if one is best else one for one in found.choices))


def plans_of(instance: Instance) -> Sequence[KvPlan]:
    """The places of KV of a question; one where it leaves none open."""
    if instance.scenario.kv_tiers or instance.workload.hold_s is not None:
        return kv_plans(instance)
    return (KvPlan(),)


def values_words(values: Values) -> str:
    """``drafts 2, overlap off``."""
    return ", ".join(f"{name} {value_words(name, value)}" for name, value in values.items())


def choices_words(every: Sequence[Values]) -> str:
    """``drafts 0, 1, 2 and overlap off, on``."""
    return " and ".join(
        f"{name} {', '.join(dict.fromkeys(value_words(name, values[name]) for values in every))}"
        for name in every[0]
    )
