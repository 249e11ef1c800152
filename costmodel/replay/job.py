"""A request on its way, and how an engine schedules it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Literal

from costmodel.question.engine import EngineHabits, FirstTokenOf


@dataclass(frozen=True)
class Habits:
    """How an engine schedules.

    ``prompts``: pieces of prompts ride in the passes of decoding sequences (``mixed``), have passes of their
    own between two of them (``between``), or all that wait are computed before decoding goes on
    (``first``). ``chunk_tokens``: tokens that one rank computes in a pass with prompts.
    ``reserves``: KV is kept for the whole answer before a request starts; else it grows, and the
    request that started last is put back when none is left. ``ahead``: what a pass holds is settled when the
    one before it starts, so that a request which comes meanwhile waits for one pass more. ``piece_tokens``: tokens of one
    prompt in a pass at most (0: as many as there is room for). ``every``: of so many passes one has pieces of prompts
    (``mixed``). ``first_token``: when the first token of a request that was handed over leaves: as it ``joins`` the decoding
    sequences, or after its first pass there (``decodes``), which computes that token.
    """

    prompts: Literal["mixed", "between", "first"] = "between"
    chunk_tokens: int = 8192
    reserves: bool = True
    ahead: bool = False
    piece_tokens: int = 0
    every: int = 1
    first_token: FirstTokenOf = "joins"

    @property
    def rounds_between(self) -> int:
        """Rounds of decoding alone after a pass with prompts."""
        return {"mixed": self.every - 1, "between": 1, "first": 0}[self.prompts]

    def piece(self, tokens: int) -> int:
        """What of so many prompt tokens the next pass may take."""
        return min(tokens, self.piece_tokens or tokens)

    @classmethod
    def of(cls, engine: EngineHabits, chunk_tokens: int) -> Habits:
        """Those of an engine that was started with such a chunk."""
        return cls(
            engine.prompts,
            chunk_tokens,
            engine.reserves_kv,
            engine.schedules_ahead,
            first_token=engine.first_token,
        )


@dataclass(slots=True)
class Job:
    """A request on its way: lengths, when it came, what it still needs."""

    index: int
    arrival_s: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    blocks: tuple[int, ...] = ()
    block_sizes: tuple[int, ...] = ()
    #: prompt tokens whose KV is there
    done: int = 0
    #: prompt tokens to compute; more than the input after it was put back
    prompt: int = 0
    #: answer tokens that are out
    emitted: int = 0
    queued_s: float = 0.0
    started_s: float = -1.0
    #: when its KV was where it decodes; below 0 if it was not handed over
    sent_s: float = -1.0
    first_s: float = -1.0
    ends_s: float = -1.0
    hit_tokens: int = 0
    #: seconds to read known blocks back before the next pass
    read_s: float = 0.0
    rank: int = 0
    kv: float = 0.0
    #: seconds by which its tokens are later than passes of the first stage, which goes on while the last ones compute its prompt
    lag_s: float = 0.0
    #: rounds in which it decodes, and by how many standard deviations they are more than on average
    rounds: int = 0
    luck: float = 0.0

    def join(self, emitted: float, spread: float) -> int:
        """Rounds that the rest of the answer takes, kept; each gives ``emitted`` tokens on average, ``spread`` either way.

        *Formula:* the rounds until ``n`` tokens are out are about normal, with mean ``n / emitted`` and variance
        ``n spread^2 / emitted^3``. *Source:* central limit theorem of renewal processes (Feller II, XI.5).
        """
        left = self.output_tokens - self.emitted
        more = self.luck * spread * sqrt(left / emitted) / emitted
        self.rounds = max(1, ceil(left / emitted + more))
        return self.rounds

    def start_again(self, rounds: int, emitted: float) -> None:
        """It was put back with so many rounds left: its prompt and what is out of its answer are computed anew."""
        out = int(self.first_s >= 0.0)
        left = min(self.output_tokens - out, ceil(rounds * emitted))
        self.emitted = self.output_tokens - left
        self.done, self.prompt = 0, self.input_tokens + self.emitted
