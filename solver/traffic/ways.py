"""Ways to serve some traffic: how many prompt tokens a pass takes at most. Each has steady answers and a bound of its own.

Few tokens in a pass let the stages of a pipeline work on one prompt at the same time, and keep short prompts from waiting
for long ones; many use a chip better.
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout
from costmodel.question.scenario import Scenario
from costmodel.replay.fleet import Tables
from solver.answer import SearchResult
from solver.clock import Clock
from solver.rounds import Search
from solver.search import search
from solver.traffic.asked import Asked, Questions, questions
from solver.traffic.bounds.least_cost import LeastCost, least_cost
from solver.traffic.fleets import Fleets
from solver.traffic.judge import Judge, Verdict
from solver.traffic.losses import units
from solver.verify import ROUNDING
from topology.errors import InstanceError, Problem

#: a pass takes all of the tokens that it takes unless told, or a half, a quarter or a sixteenth
_PARTS = (1, 2, 4, 16)


@dataclass(frozen=True)
class Looking:
    """How each search looks: its clock, gap, seed and threads."""

    clock: Clock
    gap: float
    seed: int
    workers: int


@dataclass(frozen=True, eq=False)
class Way:
    """One way: its questions, the steady answer at the spread of lengths, fleets and the bound."""

    chunk: int
    own: Questions
    spread: SearchResult
    plain: Fleets
    least: LeastCost
    judge: Judge

    @property
    def ttft_s(self) -> float:
        """What a first token takes without a queue."""
        return self.spread.evaluation.ttft_s or 0.0

    def verdict(self, layout: Layout, evaluation: Evaluation) -> Verdict:
        """What replays say of a layout. What costs less than the bound carries the rate for as long as a replay lasts, not for ever."""
        cost = evaluation.usd_per_m_output_tokens
        beneath = cost is None or cost < self.least.usd_per_m_output_tokens * (1 - ROUNDING)
        return self.judge.nothing if beneath else self.judge.judge(layout)

    @classmethod
    def of(
        cls, scenario: Scenario, asked: Asked, chunk: int, how: Looking, like: Way | None = None
    ) -> Way:
        """With so many tokens; ``like``: another way, whose draws judge this one as well. Raises what searches raise."""
        own = questions(of_chunk(scenario, chunk), asked)
        clock = how.clock.follower()  # a steady answer is none for traffic
        every = search(own.every, clock=clock, gap=how.gap, seed=how.seed, workers=how.workers)
        least = least_cost(own, asked, every, how.clock, how.seed, how.workers)
        plain = Search(own.spread, how.clock, how.gap, how.seed, None, workers=how.workers)
        spread = plain.run()
        assert spread is not None
        tables = Tables(asked.requests.longest)
        number = len(units(own.spread, asked.spare)) if asked.spare else 0
        fleets = Fleets(plain, asked.steady, asked.targets, how.seed, units=number, tables=tables)
        judge = Judge(own.spread, asked, how.seed, None if like is None else like.judge, tables)
        return cls(chunk, own, spread, fleets, least, judge)


def chunks_of(scenario: Scenario, asked: Asked) -> tuple[int, ...]:
    """Tokens of a pass that are tried: those of a question that names them, else fewer as well where first tokens are judged.

    Raises ``InstanceError`` where other options are left open.
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
    return tuple(dict.fromkeys(max(1, own // part) for part in _PARTS))


def of_chunk(scenario: Scenario, chunk: int) -> Scenario:
    """The question with so many prompt tokens in a pass."""
    return scenario.choosing({"chunk": chunk})


def first_of(scenario: Scenario, asked: Asked) -> Scenario:
    """The question with the first of the chunks that are tried."""
    return of_chunk(scenario, chunks_of(scenario, asked)[0])


def chunk_line(chunks: list[int]) -> str:
    """What a certificate says of ways with so many tokens."""
    *some, last = (f"{chunk:,}" for chunk in chunks)
    tokens = f"{', '.join(some)} or {last}" if some else last
    return f"passes of at most {tokens} prompt tokens per attention rank, as many in all replicas"
