r"""What shapes decode at most where some requests may miss the TPOT target but are decoded all the same.

A pass over ``S`` sequences with ``X`` tokens of context takes at least ``f + a S + b X`` seconds: ``a`` and ``b`` are taken
where the batch is the largest that the target and HBM allow, ``f`` is the least over batches and contexts around it and
over batches that fill HBM. Requests of ``s`` steps at a mean context ``c``, which keep ``k`` tokens of KV, take ``w = s (a + b
c)`` and hold ``h = s k`` tokens, pass by pass; HBM has room for ``H``. Passes with a request that meets the target ``T``
hold work of ``T - f`` at most, and all passes hold KV of ``H`` at most; so with the requests ``L`` that miss it the passes are::

    at least  sum h / H    and at least    (sum w - sum_L w) / (T - f) + sum_L h / H

and the time is ``sum w + f passes``. ``L`` saves most where it is the share that may miss the target with the largest
``w / (T - f) - h / H``. A mixed replica computes its prompts beside that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from costmodel.question.instance import Instance
from costmodel.question.spread import Spread, most_left
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Slo
from costmodel.replica.serving import schedule
from costmodel.tolerance import RELATIVE
from solver.bounds.block import Block
from solver.bounds.pricing import Pricer
from solver.known import Known
from solver.shapes.shapes import ROLES, ShapeTable
from solver.shapes.stands import neighbours_matter

Array = NDArray[np.float64]

#: step in batch and in context by which a pass is seen to grow
_STEP = 0.05
#: batches around the largest one that passes are timed at, over it
_AROUND = (0.75, 1.0, 1.5)
#: batches that fill HBM, from sequences of so many times the mean's tokens to those of the longest request
_FULL, _FROM = 8, 0.5
#: seconds for the bound on fleets
_FLEET_S = 12.0
#: what one token more and one of context more take is rounded up to so many equal parts of a power of e
_PARTS = 200.0


@dataclass(frozen=True)
class Decoding:
    """What requests take to decode: steps, these times the mean context, and times the tokens of KV kept; one entry each."""

    steps: Array
    read: Array
    held: Array

    @classmethod
    def of(cls, requests: Requests) -> Decoding:
        """That of some requests; an answer of one token has no step."""
        given, asked = (
            np.asarray(own, dtype=float) for own in (requests.input_tokens, requests.output_tokens)
        )
        steps = np.maximum(asked - 1.0, 0.0)
        return cls(steps, steps * (given + asked / 2), steps * (given + asked))

    def spread(self, prompts: Spread) -> Spread:
        """The means of all of them, beside the prompts of another spread."""
        steps = float(self.steps.mean())
        means = {
            "steps": steps,
            "context": float(self.read.mean()) / steps,
            "kept": float(self.held.mean()) / steps,
        }
        return prompts.model_copy(update=means)


def rates_with_late(known: Known, requests: Requests, exempt: float) -> Array:
    """Requests/s by shape that none exceeds, ``[shapes]``: the upper bounds of ``known`` or less.

    ``known``: the question without the decoding of the share ``exempt`` of the requests. Each replica is given its share
    of all lengths. Layers that read a part of their context, chips whose neighbours matter, and drafts keep the bounds they have.
    """
    upper, spread = known.items.upper.copy(), known.instance.workload.spread
    target = known.instance.slo.tpot
    capped = any(
        attention.window or attention.read_top_k or attention.local_window
        for kind in known.instance.operations.kinds
        for attention in kind.attentions
    )
    capped |= known.instance.speculative is not None
    own = Decoding.of(requests)
    if target is None or spread is None or not exempt or capped or not own.steps.any():
        return upper
    workload = known.instance.workload.model_copy(update={"spread": own.spread(spread)})
    whole = replace(
        known.instance,
        workload=workload,
        scenario=known.instance.scenario.model_copy(update={"slo": Slo(tpot=target)}),
    )
    pricer, shapes = known.pricer.again(whole), known.shapes
    largest = pricer.bounds(shapes, known.workers).per_rank.astype(float)
    decodes = (shapes.role != ROLES.index("prefill")) & (upper > 0) & (largest > 0)
    for role, index in sorted(
        {(int(shapes.role[row]), int(shapes.pool_class[row])) for row in np.flatnonzero(decodes)}
    ):
        if neighbours_matter(known.instance.cluster, known.classes[index].domain):
            continue  # a pass may be quicker on another set of chips
        rows = np.flatnonzero(decodes & (shapes.role == role) & (shapes.pool_class == index))
        passes = _Passes(pricer, shapes.take(rows), largest[rows])
        upper[rows] = np.minimum(upper[rows], passes.at_most(own, exempt))
    return upper


def least_usd(known: Known, rates: Array) -> float:
    """Dollars per million output tokens that no layout costs less than, with shapes that serve no more than ``rates``.

    Infinite where none serves.
    """
    items = known.items.best(rates, np.minimum(rates, known.items.leaving))
    if not items:
        return inf
    return known.fleet(items, _FLEET_S).bound * known.to_usd


class _Passes:
    """Passes of shapes of one role on one class, at batches and contexts around their largest."""

    def __init__(self, pricer: Pricer, shapes: ShapeTable, largest: Array) -> None:
        """``largest``: sequences of a rank in the largest batch of all requests."""
        self.pricer, self.shapes = pricer, shapes
        self.role, self.index = int(shapes.role[0]), int(shapes.pool_class[0])
        instance = pricer.instance
        assert instance.workload.spread is not None
        self.context = instance.workload.spread.context
        block = self._block(1.0)
        room, none = block.room, np.zeros_like(block.tp)
        left = room.usable_bytes * (1 + RELATIVE) - room.needed(room.mean, none, none + 1.0)
        #: sequences that HBM has room for, and their tokens of KV
        with np.errstate(divide="ignore"):
            self.full = np.where(room.kv > 0, np.maximum(left, 0.0) / room.kv * block.ranks, np.inf)
        self.kept = self.full * instance.kept_context(ROLES[self.role])
        self.largest = np.maximum(1.0, np.minimum(largest * block.ranks, self.full))

    def at_most(self, own: Decoding, exempt: float) -> Array:
        """Requests/s of each shape at most, ``inf`` where passes tell nothing."""
        steps, read, held = (float(one.mean()) for one in (own.steps, own.read, own.held))
        base = self._pass(self.largest, 1.0)[0]
        more = (1.0 + _STEP) * self.largest
        per_step = np.maximum(0.0, self._pass(more, 1 / (1 + _STEP))[0] - base) / (
            more - self.largest
        )
        per_read = np.maximum(0.0, self._pass(self.largest, 1.0 + _STEP)[0] - base)
        per_read /= _STEP * self.largest * self.context
        fixed, prompts = self._least(own, exempt, per_step, per_read)
        work = per_step * steps + per_read * read
        target = self.pricer.instance.slo.tpot
        assert target is not None
        with np.errstate(divide="ignore", invalid="ignore"):
            a_pass = target * (1 + RELATIVE) - fixed
            # what one token and one of context take of a pass, over what one of KV takes of HBM
            saved = _saved(
                per_step / a_pass * self.kept, per_read / a_pass * self.kept, own, exempt
            )
            passes = np.maximum(held / self.kept, work / a_pass - saved / self.kept)
            rate = 1.0 / (work + fixed * passes + prompts)
        sure = (fixed >= 0.0) & (a_pass > 0.0) & np.isfinite(self.kept) & np.isfinite(rate)
        return np.where(sure, rate, inf)

    def _least(
        self, own: Decoding, exempt: float, per_step: Array, per_read: Array
    ) -> tuple[Array, Array]:
        """Seconds of a pass beside what grows with sequences and contexts, and of the prompts of a request, at least."""
        steps, read = (most_left(one, exempt) / one.mean() for one in (own.steps, own.read))
        fixed, prompts = np.full(len(self.largest), inf), np.full(len(self.largest), inf)
        some = own.steps > 0
        longest = float(
            (own.held[some] / own.steps[some]).max() * own.steps.mean() / own.held.mean()
        )
        places = [
            (times * self.largest, far) for far in (read, 1.0, 1.0 / steps) for times in _AROUND
        ]
        for total, far in [
            *places,
            *((self.full / far, far) for far in np.geomspace(_FROM, longest, _FULL)),
        ]:
            total = np.maximum(1.0, np.where(np.isfinite(total), total, self.largest))
            took, prompt_s = self._pass(total, far)
            fixed = np.minimum(
                fixed, took - per_step * total - per_read * total * far * self.context
            )
            prompts = np.minimum(prompts, prompt_s)
        return fixed, prompts

    def _pass(self, total: Array, far: float) -> tuple[Array, Array]:
        """Seconds from pass to pass of so many sequences at ``far`` times the mean context, and of a request's prompts."""
        block = self._block(far)
        batch = block.spread.smooth(total)
        workload = block.instance.workload
        plan = schedule(
            ROLES[self.role], workload, block.instance.limits, batch.per_rank
        ).filled(batch.in_pass / (batch.per_rank * block.ranks))  # fmt: skip
        assert plan.decode is not None
        decode, prompts = block.pipeline(plan.decode, exact_stages=False), np.zeros_like(total)
        if plan.prefill is not None:
            each = plan.passes * block.pipeline(plan.prefill, exact_stages=False).max_s
            prompts = block.pp * plan.events * each * workload.decode_steps / total
        return decode.period_s(block.pp), prompts

    def _block(self, far: float) -> Block:
        instance: Instance = self.pricer.instance
        spread = instance.workload.spread
        assert spread is not None
        further = spread.model_copy(update={"context": spread.context * far})
        workload = instance.workload.model_copy(update={"spread": further})
        pricer = self.pricer.again(replace(instance, workload=workload))
        return pricer.block(self.shapes, self.role, pricer.classes[self.index])


def _saved(per_step: Array, per_read: Array, own: Decoding, exempt: float) -> Array:
    """Tokens of KV, per request, that passes hold less where a share of the requests may be late, at most ``[shapes]``.

    ``per_step``, ``per_read``: tokens of KV that a step and a token of context are worth. Both are rounded up, so that few
    pairs are left.
    """
    count, number = int(exempt * len(own.steps)), len(own.steps)
    if not count:
        return np.zeros_like(per_step)
    pairs, inverse = np.unique(
        np.stack([_rounded_up(per_step), _rounded_up(per_read)], axis=1),
        axis=0,
        return_inverse=True,
    )
    found = np.zeros(len(pairs))
    for place, (step, token) in enumerate(pairs):
        each = np.maximum(0.0, step * own.steps + token * own.read - own.held)
        found[place] = np.partition(each, number - count)[number - count :].sum() / number
    return np.asarray(found[inverse.ravel()])


def _rounded_up(values: Array) -> Array:
    """Values that are not above 0 or not finite become 0."""
    known = np.isfinite(values) & (values > 0.0)
    parts = np.ceil(np.log(np.where(known, values, 1.0)) * _PARTS)
    return np.where(known, np.exp(parts / _PARTS), 0.0)
