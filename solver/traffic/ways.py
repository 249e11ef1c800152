"""Ways to serve some traffic: how many prompt tokens a pass takes at most. Each has steady answers and a bound of its own.

Few tokens in a pass let the stages of a pipeline work on one prompt at the same time, and keep short prompts from waiting
for long ones; many use a chip better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import NDArray

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import PromptOrder, Slo
from costmodel.replay.fleet import Tables, standing
from costmodel.replay.gaps import Gaps
from costmodel.replay.pass_table import STEP
from solver.answer import SearchResult
from solver.clock import Clock
from solver.rounds import Search
from solver.search import kept_groundwork, search
from solver.traffic.asked import Asked, Questions, questions
from solver.traffic.bounds.least_cost import LeastCost, least_cost
from solver.traffic.fleets import Fleets
from solver.traffic.judge import Judge, Verdict
from solver.traffic.loads import carried, queued
from solver.traffic.losses import units
from solver.verify import ROUNDING, usd_per_m_output
from topology.errors import InstanceError, NoFeasibleLayout, Problem

Floats = NDArray[np.float64]

#: sixteenths of the tokens that a pass takes unless told: all, a half, a quarter, one; one between the first two, where one layout is searched
_PARTS, _BETWEEN = (16, 8, 4, 1), 12

#: a request may meet less than that, so that it proves nothing
STEADY = (
    "no layout meets the targets in a steady state, where each prompt just missed a full pass and each answer meets as many "
    "prompts as end"
)


#: chips of a small fleet: in larger ones a steady state is near what requests meet
FEW = 16


@dataclass(frozen=True)
class Looking:
    """How each search looks: its clock, gap, seed and threads. ``fullest``: any answer will do, so that what carries most comes first."""

    clock: Clock
    gap: float
    seed: int
    workers: int
    fullest: bool = False


@dataclass(frozen=True, eq=False)
class Way:
    """One way: its questions, the steady answer at the spread of lengths, fleets and the bound.

    ``failed``: why none meets the targets in a steady state, where that answer is one without them.
    """

    chunk: int
    own: Questions
    spread: SearchResult
    plain: Fleets
    least: LeastCost
    judge: Judge
    failed: NoFeasibleLayout | None = None

    @property
    def ttft_s(self) -> float:
        """What a first token takes without a queue."""
        return self.spread.evaluation.ttft_s or 0.0

    @property
    def order(self) -> PromptOrder:
        """Which waiting prompt is next."""
        return self.judge.course.order

    @cached_property
    def shortest(self) -> Way | None:
        """The same with the shortest prompt next; ``None`` where that is so already, or not to be chosen."""
        asked = self.judge.asked
        if not order_open(self.own.spread, asked):
            return None
        spread = shortest_first(self.own.spread)
        judge = Judge(spread, asked, self.judge.seed, self.judge, self.plain.tables)
        return replace(self, own=replace(self.own, spread=spread), judge=judge)

    def loads(self, hurry: float = 1.0) -> dict[str, float]:
        """Load by role, of 1, that its pools may carry: where a search starts.

        ``hurry``: part of the time without a queue that a first token takes. Where parts of prompts are known, formulas tell.
        """
        asked = self.judge.asked
        if asked.prefixes != "off":
            return carried(asked.arriving, asked.targets, hurry * self.ttft_s)
        runs = [*self.judge.runs, *self.judge.likely]
        ttft_s, shortest = hurry * self.ttft_s, self.order == "shortest"
        return queued(runs, self._prompt_s, asked.targets, ttft_s, shortest=shortest)

    def hurried(self, hurry: float) -> Fleets | None:
        """Fleets of replicas that compute prompts in such a part of the time; ``None``: there are none."""
        if hurry == 1.0:
            return self.plain
        return self.plain.under(
            self.own.spread.slo.model_copy(update={"ttft": hurry * self.ttft_s})
        )

    def _prompt_s(self, requests: Requests) -> Floats:
        """Seconds that each prompt holds one replica of the steady answer."""
        lengths, took_s = self._by_length
        whole, known = (
            np.interp(own, lengths, took_s)
            for own in (requests.input_tokens, requests.cached_tokens)
        )
        return np.asarray(whole - known)

    @cached_property
    def _by_length(self) -> tuple[Floats, Floats]:
        """Prompts of some lengths, and how long each holds that replica."""
        instance, layout = self.own.spread, self.spread.layout
        first = next(one for one in layout.replicas if one.role != "decode")
        alone = layout.model_copy(update={"replicas": (first,)})
        course, longest = self.judge.course, self.judge.asked.requests.longest
        (one,) = standing(instance, alone, course.habits, Gaps(), longest, self.plain.tables)
        lengths = np.arange(0, longest + STEP, STEP)
        return lengths.astype(float), np.array([one.prompt_s(0, int(n)) for n in lengths])

    def promises(self) -> tuple[float, float]:
        """What a fleet with such loads costs (``inf``: chips are too few), and the parts of chips that it needs."""
        needs = {role: 1.0 / load for role, load in self.loads().items()}
        fleet = self.plain.least(needs)
        return inf if fleet is None else fleet.usd_per_hour, self.plain.parts_of_chips(needs)

    def verdict(self, layout: Layout, evaluation: Evaluation) -> Verdict:
        """What replays say of a layout. What costs less than the bound carries the rate for as long as a replay lasts, not for ever."""
        cost = evaluation.usd_per_m_output_tokens
        beneath = cost is None or cost < self.least.usd_per_m_output_tokens * (1 - ROUNDING)
        return self.judge.nothing if beneath else self.judge.judge(layout)

    @classmethod
    def of(
        cls, scenario: Scenario, asked: Asked, chunk: int, how: Looking, like: Way | None = None
    ) -> Way:
        """With so many tokens; ``like``: another way, whose draws judge this one as well. Raises what searches raise.

        Where small fleets may do, the steady answer need not meet the targets.
        """
        own = questions(of_chunk(scenario, chunk), asked, None if like is None else like.own)
        clock = how.clock.follower()  # a steady answer is none for traffic
        # brief: proofs of steady answers that replays have not judged may take all the time
        every = search(
            own.every, clock=clock, gap=how.gap, seed=how.seed, workers=how.workers, brief=True
        )
        least = least_cost(own, asked, every, how.clock, how.seed, how.workers)
        plain, failed = steady_search(own.spread, how), None
        try:
            spread = plain.run(brief=True)
        except NoFeasibleLayout as error:
            failed = NoFeasibleLayout(f"{STEADY}: {error}", proven=False)
            if not may_be_small(own.spread, least):
                raise failed from error
            plain = steady_search(without_targets(own.spread), how)
            spread = plain.run(brief=True)
        assert spread is not None
        tables = Tables(asked.requests.longest)
        number = len(units(own.spread, asked.spare)) if asked.spare else 0
        fleets = Fleets(plain, asked.steady, asked.targets, how.seed, units=number, tables=tables)
        judge = Judge(own.spread, asked, how.seed, None if like is None else like.judge, tables)
        return cls(chunk, own, spread, fleets, least, judge, failed)


def steady_search(instance: Instance, how: Looking) -> Search:
    """A search of a steady question that has not begun."""
    ground = kept_groundwork(instance)
    return Search(instance, how.clock, how.gap, how.seed, None, workers=how.workers, ground=ground)


def least_usd_per_hour(instance: Instance, least: LeastCost) -> float:
    """Dollars per hour that no layout for the rate costs less than."""
    assert instance.scenario.rate is not None
    usd = least.usd_per_m_output_tokens / usd_per_m_output(instance) * instance.scenario.rate
    return usd * (1 - ROUNDING)


def may_be_small(instance: Instance, least: LeastCost) -> bool:
    """Whether what no layout costs less than is no more than what :data:`FEW` chips cost."""
    usable = instance.cluster.usable
    dearest = max(one.chip.usd_per_hour for one in usable)
    return least_usd_per_hour(instance, least) <= min(FEW, len(usable)) * dearest


def without_targets(instance: Instance) -> Instance:
    """The same question without targets."""
    free = instance.scenario.model_copy(update={"slo": Slo()})
    return replace(instance, scenario=free)


def chunks_of(scenario: Scenario, asked: Asked, *, fine: bool = False) -> tuple[int, ...]:
    """Tokens of a pass that are tried: those of a question that names them, else fewer as well where first tokens are judged.

    ``fine``: one more number of tokens. Raises ``InstanceError`` where other options are left open.
    """
    limits, choices = scenario.limits, scenario.choices
    own = limits.prefill_chunk_tokens
    if choices is not None:
        if others := [name for name in choices.options if name != "chunk"]:
            message = f"{', '.join(others)}: only chunk is chosen with traffic"
            raise InstanceError(Problem("choices", message))
        return choices.chunk
    if "prefill_chunk_tokens" in limits.model_fields_set or asked.targets.ttft_p99_s is None:
        return (own,)
    parts = sorted({*_PARTS, *([_BETWEEN] if fine else [])}, reverse=True)
    return tuple(dict.fromkeys(max(1, own * part // 16) for part in parts))


def order_open(instance: Instance, asked: Asked) -> bool:
    """Whether the shortest of the prompts that wait may be next: the question leaves that open, and the last ones may be late.

    Not where prefixes are kept: the order tells what is still known.
    """
    told = "prompt_order" in instance.scenario.limits.model_fields_set
    return not told and asked.targets.ttft_p99_s is not None and asked.prefixes == "off"


def shortest_first(instance: Instance) -> Instance:
    """The same question with the shortest of the prompts that wait next."""
    own = instance.scenario
    limits = own.limits.model_copy(update={"prompt_order": "shortest"})
    return replace(instance, scenario=own.model_copy(update={"limits": limits}))


def of_chunk(scenario: Scenario, chunk: int) -> Scenario:
    """The question with so many prompt tokens in a pass."""
    return scenario.choosing({"chunk": chunk})


def as_served(scenario: Scenario, answer: Instance) -> Scenario:
    """The question with the tokens of a pass and the order of prompts of an answer."""
    own = of_chunk(scenario, answer.limits.prefill_chunk_tokens)
    if "prompt_order" not in answer.scenario.limits.model_fields_set:
        return own
    limits = own.limits.model_copy(update={"prompt_order": answer.limits.prompt_order})
    return own.model_copy(update={"limits": limits})


def first_of(scenario: Scenario, asked: Asked) -> Scenario:
    """The question with the first of the chunks that are tried."""
    return of_chunk(scenario, chunks_of(scenario, asked, fine=True)[0])


def chunk_line(chunks: list[int]) -> str:
    """What a certificate says of ways with so many tokens."""
    *some, last = (f"{chunk:,}" for chunk in chunks)
    tokens = f"{', '.join(some)} or {last}" if some else last
    return f"passes of at most {tokens} prompt tokens per attention rank, as many in all replicas"
