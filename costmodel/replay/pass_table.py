"""Pass times of one replica as tables, by the cost model that ``evaluate`` uses.

A pass of the cost model is a sum of parts, each of which depends on one number: the tokens of the busiest
attention rank, those of the average rank (routed experts), the sequences that reach the LM head, the
context of each decoding sequence, and the tokens that each prompt attends to. A table holds each part
by its number, so that any mix of sequences and prompts is priced by a few look-ups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import Layout, Replica
from costmodel.passes.tokens import Tokens
from costmodel.question.instance import Instance
from costmodel.replica.replica import hand_off_s, replica_rates
from costmodel.replica.stage_times import StagePass, stage_times

Array = NDArray[np.float64]

#: tokens between two entries of the tables of contexts
STEP = 64
#: points at which the cost model is asked for each table
_POINTS = 40
_EXPERTS = "routed_experts"
_CONTEXT = "attention_context"


@dataclass(frozen=True)
class Line:
    """Seconds by a whole number (list index), all stages' sum or the slowest stage's."""

    seconds: list[float]

    def at(self, number: float) -> float:
        """Seconds at a number, between entries by a straight line, beyond the last one likewise."""
        low = int(number)
        if low >= len(self.seconds) - 1:
            low = len(self.seconds) - 2
        first = self.seconds[low]
        return first + (number - low) * (self.seconds[low + 1] - first)


@dataclass(frozen=True)
class PassParts:
    """One reduction over the stages (their sum, or the slowest): every part by its number.

    ``rows``: tokens of the busiest rank. ``routed``: tokens of the average rank. ``sampled``: sequences
    that reach the LM head. ``decode``: one decoding sequence by its context, in steps of :data:`STEP`.
    ``prompt``: attention of one whole prompt by its length, in the same steps.
    """

    rows: Line
    routed: Line
    sampled: Line
    decode: Line
    prompt: Line

    def seconds(self, rows: float, average: float, sampled: float) -> float:
        """A pass without its attention over contexts."""
        return self.rows.at(rows) + self.routed.at(average) + self.sampled.at(sampled)


@dataclass(frozen=True)
class PassTable:
    """Pass times of a replica.

    ``ranks``: attention ranks. ``stages``: pipeline stages, which keep as many microbatches in flight.
    ``verified``, ``emitted``: tokens computed and gained per sequence and decode pass. ``hop_s``: seconds
    between stages of a pass, by its tokens per rank.
    """

    whole: PassParts
    slowest: PassParts
    hop: Line
    ranks: int
    stages: int
    verified: float = 1.0
    emitted: float = 1.0

    def round_s(self, sequences: int, context: float) -> float:
        """Seconds in which every decoding sequence of the replica has one pass, at a mean context."""
        if not sequences:
            return 0.0
        groups = self.ranks * self.stages
        busiest = -(-sequences // groups)
        average = sequences / groups
        rows, mean = busiest * self.verified, average * self.verified
        whole = self.whole.seconds(rows, mean, rows)
        whole += busiest * self.whole.decode.at(context / STEP)
        if self.stages == 1:
            return whole
        slowest = self.slowest.seconds(rows, mean, rows)
        slowest += busiest * self.slowest.decode.at(context / STEP)
        return max(whole + self.hop.at(rows), self.stages * slowest)

    def pass_s(
        self,
        rows: float,
        average: float,
        prompts: float,
        attended_s: tuple[float, float],
        decoding: int = 0,
        context: float = 0.0,
    ) -> tuple[float, float]:
        """Seconds that a pass with prompt tokens holds the slowest stage, and its seconds from end to end.

        ``rows``, ``average``: prompt tokens of the busiest and of the average rank. ``prompts``: of the busiest
        rank that end in this pass. ``attended_s``: attention of its prompts, on all stages and on the
        slowest, see :meth:`attention_s`. ``decoding`` sequences of the whole replica take part.
        """
        groups = self.ranks * self.stages
        busiest = -(-decoding // groups)
        own = busiest * self.verified
        mean = decoding / groups * self.verified
        whole = self.whole.seconds(rows + own, average + mean, prompts + own) + attended_s[0]
        if busiest:
            whole += busiest * self.whole.decode.at(context / STEP)
        if self.stages == 1:
            return whole, whole
        slowest = self.slowest.seconds(rows + own, average + mean, prompts + own) + attended_s[1]
        if busiest:
            slowest += busiest * self.slowest.decode.at(context / STEP)
        return slowest, whole + self.hop.at(rows + own)

    def attention_s(self, start: int, end: int) -> tuple[float, float]:
        """Attention of a prompt's tokens ``start`` to ``end``: all stages, slowest stage.

        Token ``i`` attends to the ``i`` before it, so that a piece costs what the longer prompt costs more.
        """
        low, high = start / STEP, end / STEP
        whole = self.whole.prompt.at(high) - self.whole.prompt.at(low)
        if self.stages == 1:
            return whole, whole
        return whole, self.slowest.prompt.at(high) - self.slowest.prompt.at(low)


def pass_table(
    instance: Instance, layout: Layout, replica: Replica, *, longest: int, most_rows: int
) -> PassTable:
    """Ask the cost model for the parts of a replica's passes.

    ``longest``: tokens of the longest context. ``most_rows``: tokens of one rank in the largest pass.
    """
    rates = replica_rates(instance, replica)
    speculative = instance.speculative
    verified = 1.0 if speculative is None else 1.0 + speculative.draft_tokens
    emitted = 1.0 if speculative is None else speculative.emitted
    rows = _spaced(most_rows + 1)
    contexts = _spaced(max(longest, STEP) + STEP)

    def parts(passes: Sequence[Tokens]) -> tuple[Array, Array, Array]:
        """Total, routed experts and attention over contexts ``[passes, stages]``."""
        timed = stage_times(
            instance, layout, [StagePass(replica, tokens, rates) for tokens in passes]
        )
        none = np.zeros(len(replica.stages))
        return (
            np.array([one.total_s for one in timed]),
            np.array([one.parts.get(_EXPERTS, none) for one in timed]),
            np.array([one.parts.get(_CONTEXT, none) for one in timed]),
        )

    # prompts that end beyond the pass reach no head
    total, routed, attended = parts(
        [Tokens(prefill=float(n), prefill_start=0.0, prefill_end=float(rows[-1])) for n in rows]
    )
    dense = total - routed - attended
    decodes = _spaced(most_rows + 1)[1:]
    d_total, d_routed, d_attended = parts(
        [Tokens(decode=n / verified, context=float(STEP), verified=verified) for n in decodes]
    )
    others = np.array([np.interp(decodes, rows, column) for column in dense.T]).T
    head = np.vstack([np.zeros(len(replica.stages)), d_total - d_routed - d_attended - others])
    one = np.vstack(
        [parts([Tokens(decode=1.0, context=float(n), verified=verified)])[2] for n in contexts]
    )
    prompt = np.vstack(
        [
            parts([Tokens(prefill=float(n), prefill_start=0.0, prefill_end=float(n))])[2]
            for n in contexts
        ]
    )
    slowest = int(np.argmax(total[-1] if replica.role == "prefill" else d_total[-1] + one[-1]))
    every = np.arange(most_rows + 2, dtype=float)
    steps = np.arange(longest // STEP + 3, dtype=float) * STEP

    def reduced(column: Array, at: Array, points: Array, stage: int | None) -> Line:
        values = column.sum(axis=1) if stage is None else column[:, stage]
        return Line(np.interp(points, at, values).tolist())

    def of(stage: int | None) -> PassParts:
        return PassParts(
            rows=reduced(dense, rows, every, stage),
            routed=reduced(routed, rows, every, stage),
            sampled=reduced(head, np.concatenate([[0.0], decodes]), every, stage),
            decode=reduced(one, contexts, steps, stage),
            prompt=reduced(prompt, contexts, steps, stage),
        )

    hops = [hand_off_s(instance, replica, rates, float(n)) for n in rows]
    return PassTable(
        of(None), of(slowest), Line(np.interp(every, rows, hops).tolist()),
        replica.shape.attention_dp, replica.shape.pp, verified, emitted,
    )  # fmt: skip


def _spaced(last: int) -> Array:
    """Whole numbers from 0 to ``last``, every one at first and then farther and farther apart."""
    found = np.unique(np.geomspace(1.0, float(last), _POINTS).round())
    return np.concatenate([[0.0], found])
