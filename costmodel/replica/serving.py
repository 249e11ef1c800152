r"""Which passes a replica runs, and what users see of them: TTFT, TPOT, requests per second.

A decode replica repeats one decode pass, a prefill replica one prefill pass; a mixed replica puts a
prefill pass between decode passes whenever a finished request has made room, so that prefill steals
decode time.

A replica of ``P`` stages keeps ``P`` microbatches in flight. With stage times ``T_1..T_P`` and hand-offs
``h``, a token needs ``sum T + sum h``; a stage serves its microbatches in turn, so a microbatch comes
round every ``max(sum T + sum h, P max T)``. A rank with ``n`` sequences has ``ceil(n / P)`` of them in its
fullest microbatch, and the fullest microbatch sets the pace: ``T`` is the time of its pass, so that ``P``
sequences in as many microbatches and one sequence with ``P - 1`` microbatches empty take equally long.
Pipelining buys memory, not latency. A request that just missed a pass waits one: the worst case; on
average half.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodel.passes.tokens import Tokens
from costmodel.question.speculation import Speculative
from costmodel.question.workload import Limits, Workload

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Schedule:
    """The passes of a replica, for one attention rank and one microbatch.

    ``decode`` is run once per token, ``prefill`` ``passes`` times per batch of ``prompts`` prompts;
    ``events``: such batches per decode pass (0 for a pure role). ``None`` where a role has no such pass.
    ``emitted``: tokens a sequence gains per decode pass, above 1 where decoding is speculative.
    ``together``: the prefill pass of a mixed replica in which every rank with sequences has its prompts, as a
    first token may meet it; ``None`` where all passes are like that. ``alone``: a prefill pass as it has to be held where
    prompts and decoding take turns (:class:`costmodel.question.spread.Spread`) and passes are taken to be full.
    """

    decode: Tokens | None
    prefill: Tokens | None
    prompts: Array
    passes: Array
    events: Array
    emitted: float = 1.0
    together: Tokens | None = None
    alone: Tokens | None = None

    def filled(self, fill: ArrayLike, together: ArrayLike | None = None) -> Schedule:
        """The same schedule where the average rank has ``fill`` of the busiest rank's tokens.

        ``together``: the same of the prompts in :attr:`together`, for a mixed replica.
        """
        fill = np.asarray(fill, dtype=float)
        if np.all(fill == 1.0):
            return self
        mixed = together is not None and self.prefill is not None and self.decode is not None
        of_prompts, events = fill, self.events
        if self.alone is not None and self.decode is not None:
            # prompts that are computed together lie on as many ranks as there are
            of_prompts = np.minimum(1.0, self.decode.decode * fill)
            events = events * fill / of_prompts
        return replace(
            self,
            decode=self.decode and replace(self.decode, fill=fill),
            prefill=self.prefill and replace(self.prefill, fill=of_prompts),
            events=events,
            together=replace(self.prefill, fill=np.asarray(together, dtype=float))
            if mixed and self.prefill is not None
            else None,
        )

    def rows(self) -> Array:
        """Tokens of the largest pass, for activations."""
        found = [tokens.rows for tokens in self._held if tokens is not None]
        return found[0] if len(found) == 1 else np.asarray(np.maximum(*found))

    def sampled(self) -> Array:
        """Tokens that reach the LM head in the pass with most of them."""
        found = [tokens.sampled for tokens in self._held if tokens is not None]
        return found[0] if len(found) == 1 else np.asarray(np.maximum(*found))

    @property
    def _held(self) -> tuple[Tokens | None, Tokens | None]:
        return self.decode, self.alone or self.prefill


def schedule(
    role: str,
    workload: Workload,
    limits: Limits,
    per_rank: ArrayLike,
    speculative: Speculative | None = None,
) -> Schedule:
    """Passes of a replica with ``per_rank`` sequences (or prompts) per rank and microbatch.

    A mixed rank finishes ``emitted per_rank / decode_steps`` requests per decode pass and prefills as
    many: one prompt at a time, or several at once where more than one finishes per pass or prompts
    arrive together. Passes hold at most ``limits.prefill_chunk_tokens`` tokens.
    """
    count = np.asarray(per_rank, dtype=float)
    ones = np.ones_like(count)
    decode = Tokens(decode=count, context=workload.decode_context)
    emitted = 1.0
    if speculative is not None:
        emitted = speculative.emitted
        decode = replace(decode, verified=1.0 + speculative.draft_tokens)
    if role == "decode":
        return Schedule(decode, None, 0.0 * ones, ones, 0.0 * ones, emitted)
    finished = emitted * count / workload.decode_steps
    prompts = count
    if role != "prefill":
        together = np.minimum(float(workload.prompts_together), count)
        prompts = np.maximum(np.maximum(1.0, together), finished)
    budget = float(limits.prefill_chunk_tokens)
    plan = _with_prompts(decode, workload, budget, prompts, finished, emitted, role)
    if workload.spread is None or not workload.spread.in_turns or role == "prefill":
        return plan
    full = np.maximum(prompts, budget / workload.new_tokens)
    return replace(
        _with_prompts(decode, workload, budget, full, finished, emitted, role), alone=plan.prefill
    )


def _with_prompts(
    decode: Tokens,
    workload: Workload,
    budget: float,
    prompts: Array,
    finished: Array,
    emitted: float,
    role: str,
) -> Schedule:
    """Passes of so many prompts each time, of ``budget`` tokens at most; ``finished`` requests per decode pass."""
    ones = np.ones_like(prompts)
    new = prompts * workload.new_tokens
    if workload.spread is not None:  # prompts of unlike lengths fill their passes
        passes = np.maximum(1.0, new / budget)
    else:
        passes = np.maximum(np.ceil(workload.new_tokens / budget), new / budget)
        passes = np.ceil(passes) if role == "prefill" else passes
    prefill = Tokens(
        prefill=new / passes,
        prefill_start=workload.prompt_start,
        prefill_end=workload.prompt_end,
        prompts=prompts / passes,
    )
    if role == "prefill":
        return Schedule(None, prefill, prompts, passes, 0.0 * ones)
    return Schedule(decode, prefill, prompts, passes, finished / prompts, emitted)


@dataclass(frozen=True)
class PipelineTime:
    """Times of one pass through the stages: their sum, the longest, and the hand-offs (seconds)."""

    sum_s: Array
    max_s: Array
    hop_s: Array

    def period_s(self, stages: ArrayLike) -> Array:
        """Seconds between two passes of one microbatch."""
        return np.asarray(
            np.maximum(self.sum_s + self.hop_s, np.asarray(stages, dtype=float) * self.max_s)
        )


@dataclass(frozen=True)
class Service:
    """What one replica offers. Roles that do not decode have ``tpot_s`` 0, and the other way round.

    ``requests_per_s`` is the steady-state ceiling; ``ttft_s`` the worst case, ``ttft_mean_s`` the
    mean, both without the KV hand-over between pools.
    """

    requests_per_s: Array
    tpot_s: Array
    ttft_s: Array
    ttft_mean_s: Array

    def delayed(self, seconds: ArrayLike) -> Service:
        """The same service with a later first token."""
        more = np.asarray(seconds, dtype=float)
        return Service(
            self.requests_per_s, self.tpot_s, self.ttft_s + more, self.ttft_mean_s + more
        )


def serve(
    workload: Workload,
    plan: Schedule,
    sequences: ArrayLike,
    stages: ArrayLike,
    decode: PipelineTime | None,
    prefill: PipelineTime | None,
    together: PipelineTime | None = None,
) -> Service:
    """Service of a replica from the times of its passes.

    ``sequences``: in flight over all ranks and microbatches (decode, mixed), or prompts of one
    microbatch over all ranks (prefill). ``decode``/``prefill``/``together``: times of the plan's passes;
    without ``together`` a first token meets ``prefill``.
    """
    sequences = np.asarray(sequences, dtype=float)
    if decode is None:
        assert prefill is not None
        busy = plan.passes * prefill.max_s
        span = busy - prefill.max_s + prefill.sum_s + prefill.hop_s
        return Service(sequences / busy, np.zeros_like(span), span + busy, span + busy / 2)
    period = decode.period_s(stages)
    if prefill is None:
        nothing = np.zeros_like(period)
        tpot = period / plan.emitted
        return Service(sequences / (tpot * workload.decode_steps), tpot, nothing, nothing)
    busy = plan.passes * prefill.max_s
    each = (period + np.asarray(stages, dtype=float) * plan.events * busy) / plan.emitted
    tpot = each if plan.alone is None else period / plan.emitted
    met = prefill if together is None else together
    busy = plan.passes * met.max_s
    span = busy - met.max_s + met.sum_s + met.hop_s
    return Service(
        sequences / (each * workload.decode_steps),
        tpot,
        span + busy + period,
        span + (busy + period) / 2,
    )
