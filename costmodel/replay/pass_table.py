"""Pass times of one replica as tables, by the cost model that ``evaluate`` uses.

A pass of the cost model is a sum of parts, each of which depends on one number: the tokens of the busiest
attention rank, those of the average rank (routed experts), the sequences that reach the LM head, the
context of each decoding sequence, and the tokens that each prompt attends to. A table holds each part
by its number, so that any mix of sequences and prompts is priced by a few look-ups.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: tokens between two entries of the tables of contexts
STEP = 64
#: numbers up to which a table has an entry for each, and the distance of entries beyond
_FINE, _COARSE = 2048, 64
#: pieces of prompts and passes of them alone that a table remembers: most are whole chunks from the same places on
_REMEMBERED = 1 << 16
#: parts of a rank's tokens in which the table of skew counts
PARTS = 64


@dataclass(frozen=True)
class Line:
    """Seconds by a number: an entry for each whole one at first, then every so many.

    ``step``: distance of the entries in ``coarse``.
    """

    fine: list[float]
    coarse: list[float]
    step: int = _COARSE

    @classmethod
    def through(cls, at: Array, values: Array, last: float) -> Line:
        """Straight lines through points, up to ``last``."""
        fine = np.arange(min(_FINE, int(last)) + 2, dtype=float)
        coarse = np.arange(int(last) // _COARSE + 3, dtype=float) * _COARSE
        return cls(
            np.interp(fine, at, values).tolist(), np.interp(coarse, at, values).tolist(), _COARSE
        )

    @classmethod
    def flat(cls, value: float) -> Line:
        """The same for every number."""
        return cls([value, value], [value, value])

    def at(self, number: float) -> float:
        """Seconds at a number: between entries by a straight line, beyond the last one likewise."""
        entries, low = self.fine, int(number)
        if low >= len(entries) - 1:
            entries, number = self.coarse, number / self.step
            low = min(int(number), len(entries) - 2)
        first = entries[low]
        return first + (number - low) * (entries[low + 1] - first)


@dataclass(frozen=True)
class PassParts:
    """One reduction over the stages (their sum, or the slowest): every part by its number.

    ``rows``: tokens of the busiest rank. ``routed``: routed experts, by the tokens of all ranks together.
    ``exchanged``: dispatch and combine beyond their latency, by the tokens of the busiest rank, were all
    ranks to receive alike; ``skew``: how much longer the busiest receiver makes it, by the share of these
    tokens (in parts of :data:`PARTS`) that the average rank has. ``sampled``: sequences that reach the LM head. ``decode``:
    one decoding sequence by its context. ``prompt``: attention of one whole prompt by its length.
    """

    rows: Line
    routed: Line
    exchanged: Line
    sampled: Line
    decode: Line
    prompt: Line
    skew: Line
    ranks: int

    def seconds(self, rows: float, average: float, sampled: float) -> float:
        """A pass without its attention over contexts."""
        found = self.rows.at(rows) + self.routed.at(average * self.ranks) + self.sampled.at(sampled)
        if self.ranks == 1 or not rows:
            return found
        return found + self.exchanged.at(rows) * self.skew.at(PARTS * average / rows)


@dataclass(frozen=True)
class PassTable:
    """Pass times of a replica.

    ``ranks``: attention ranks. ``stages``: pipeline stages, which keep as many microbatches in flight.
    ``verified``, ``emitted``: tokens computed and gained per sequence and decode pass; ``spread``: the standard deviation of
    those gained. ``hop_s``: seconds
    between stages of a pass, by its tokens per rank.
    """

    whole: PassParts
    slowest: PassParts
    hop: Line
    ranks: int
    stages: int
    verified: float = 1.0
    emitted: float = 1.0
    spread: float = 0.0
    _known: dict[tuple[float, ...], tuple[float, float]] = field(
        default_factory=dict, compare=False, repr=False
    )
    #: of a round of so many sequences: those of the busiest group, and seconds without contexts: all stages, slowest, hop
    _rounds: dict[int, tuple[int, float, float, float]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def round_s(self, sequences: int, context: float) -> float:
        """Seconds in which every decoding sequence of the replica has one pass, at a mean context."""
        if not sequences:
            return 0.0
        busiest, whole, slowest, hop = self._rounds.get(sequences) or self._round(sequences)
        whole += busiest * self.whole.decode.at(context)
        if self.stages == 1:
            return whole
        slowest += busiest * self.slowest.decode.at(context)
        return max(whole + hop, self.stages * slowest)

    def _round(self, sequences: int) -> tuple[int, float, float, float]:
        """What of a round its contexts do not change; kept."""
        groups = self.ranks * self.stages
        busiest = -(-sequences // groups)
        rows, mean = busiest * self.verified, sequences / groups * self.verified
        slowest = 0.0 if self.stages == 1 else self.slowest.seconds(rows, mean, rows)
        hop = 0.0 if self.stages == 1 else self.hop.at(rows)
        found = busiest, self.whole.seconds(rows, mean, rows), slowest, hop
        self._rounds[sequences] = found
        return found

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
        slowest, see :meth:`attention_s`. ``decoding`` sequences of the whole replica take part: the pass is then
        a round, in which every group of them has its own.
        """
        if decoding:
            return self._pass_s(rows, average, prompts, attended_s, decoding, context)
        key = rows, average, prompts, *attended_s
        found = self._known.get(key)
        return found or self._kept(key, self._pass_s(rows, average, prompts, attended_s, 0, 0.0))

    def _kept(self, key: tuple[float, ...], found: tuple[float, float]) -> tuple[float, float]:
        if len(self._known) < _REMEMBERED:
            self._known[key] = found
        return found

    def _pass_s(
        self,
        rows: float,
        average: float,
        prompts: float,
        attended_s: tuple[float, float],
        decoding: int,
        context: float,
    ) -> tuple[float, float]:
        groups = self.ranks * self.stages
        busiest = -(-decoding // groups)
        own = busiest * self.verified
        mean = decoding / groups * self.verified
        whole = self.whole.seconds(rows + own, average + mean, prompts + own) + attended_s[0]
        if busiest:
            whole += busiest * self.whole.decode.at(context)
        if self.stages == 1:
            return whole, whole
        slowest = self.slowest.seconds(rows + own, average + mean, prompts + own) + attended_s[1]
        whole += self.hop.at(rows + own)
        if not busiest:
            return slowest, whole
        attended = busiest * self.slowest.decode.at(context)
        others = (self.stages - 1) * (self.slowest.seconds(own, mean, own) + attended)
        return max(whole, slowest + attended + others), whole

    def attention_s(self, start: int, end: int) -> tuple[float, float]:
        """Attention of a prompt's tokens ``start`` to ``end``: all stages, slowest stage.

        Token ``i`` attends to the ``i`` before it, so that a piece costs what the longer prompt costs more.
        """
        found = self._known.get((start, end))
        return found or self._kept((start, end), self._attention_s(start, end))

    def _attention_s(self, start: int, end: int) -> tuple[float, float]:
        whole = self.whole.prompt.at(end) - self.whole.prompt.at(start)
        if self.stages == 1:
            return whole, whole
        return whole, self.slowest.prompt.at(end) - self.slowest.prompt.at(start)


@dataclass
class Pending:
    """Prompts that wait for their passes: tokens, and seconds in which the slowest stage attends to their contexts."""

    table: PassTable
    tokens: int = 0
    attention_s: float = 0.0

    def add(self, start: int, end: int) -> None:
        """A prompt's tokens ``start`` to ``end`` wait."""
        self.tokens += end - start
        self.attention_s += self.table.attention_s(start, end)[1]

    def drop(self, start: int, end: int) -> None:
        """They no longer do."""
        self.tokens -= end - start
        self.attention_s -= self.table.attention_s(start, end)[1]
