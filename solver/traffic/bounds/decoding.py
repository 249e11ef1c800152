r"""What shapes decode at most where some requests may miss the TPOT target but are decoded all the same.

A pass over ``S`` sequences with ``X`` tokens of context takes at least ``f + a S + b X`` seconds: ``a`` and ``b`` are taken
around the largest batch that the target and HBM allow, or between it and one that fills HBM; ``f`` is the least over batches and
contexts. A request of ``s`` steps at a mean context ``c``, which keeps ``k`` tokens of KV, takes ``w = s (a + b c)`` beside ``f`` and
holds ``h = s k`` tokens, pass by pass; HBM has room for ``H``. Passes that meet the target ``T`` hold work of ``T - f`` at most, so
that a request takes at least ``w T / (T - f)`` of such passes. In others, of which all have ``f'`` for slopes ``a', b'`` of their own,
it takes ``w' + f' h / H`` at least. The requests that miss the target save most where they are the share that may miss it with the
largest difference of the two. A mixed replica computes its prompts beside that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf

import numpy as np
from numpy.typing import NDArray

from costmodel.question.instance import Instance
from costmodel.question.spread import Spread, most_left
from costmodel.question.traffic.requests import Requests
from costmodel.replica.serving import PipelineTime, schedule
from costmodel.tolerance import RELATIVE
from solver.bounds.block import Block
from solver.bounds.pricing import Pricer
from solver.shapes.shapes import ROLES, ShapeTable

Array = NDArray[np.float64]

#: step in batch and in context by which a pass is seen to grow
_STEP = 0.05
#: batches around the largest one that passes are timed at, over it
_AROUND = (0.5, 0.75, 0.9, 1.0, 1.1)
#: contexts that passes are timed at, from so many times the mean to that of the longest request
_FULL, _FROM = 8, 0.5
#: sequences of the largest batch at least: passes of fewer grow in steps, and not all ranks have some
_SEQUENCES = 32
#: batches from one sequence to the largest at which passes are timed that take turns with prompts: four times as many change
#: what one shape serves by 0.9 % at most, and what the best of a role serves by 0.05 %
_TURNS = 96
#: seconds of a pass that count as none
_NEARLY_NONE = 1e-12
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


class DecodePasses:
    """Passes of shapes of one role on one class, at batches and contexts around their largest."""

    def __init__(self, pricer: Pricer, shapes: ShapeTable, largest: Array) -> None:
        """``largest``: sequences of a rank in the largest batch of all requests."""
        self.pricer, self.shapes = pricer, shapes
        self.role, self.index = int(shapes.role[0]), int(shapes.pool_class[0])
        instance = pricer.instance
        assert instance.workload.spread is not None
        self.context = instance.workload.spread.context
        #: by contexts, over the mean
        self._blocks: dict[float, Block] = {}
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
        slopes = self._slopes()
        in_time, late, prompts = self._least(own, exempt, slopes)
        known = (self.largest >= _SEQUENCES) & np.isfinite(self.kept)
        least_s = np.zeros(len(self.largest))
        assert self.pricer.instance.slo.tpot is not None
        target = self.pricer.instance.slo.tpot * (1 + RELATIVE)
        with np.errstate(divide="ignore", invalid="ignore"):
            # a request that is late takes what it adds to passes, and its part of one that fills HBM
            per_kept = np.maximum(late, _NEARLY_NONE) / self.kept
            # one that meets the target takes at least its part of a full pass
            each = target / (target - in_time)
            for off, (step, token) in enumerate(slopes):
                taken = step * steps + token * read + per_kept[off] * held + prompts
                least_s = np.where(late[off] >= 0.0, np.maximum(least_s, taken), least_s)
            for on, off in product(range(len(slopes)), repeat=2):
                step, token = (each[on] * slope for slope in slopes[on])
                more = step - slopes[off][0], token - slopes[off][1]
                worth = more[0] / per_kept[off], more[1] / per_kept[off]
                saved = per_kept[off] * _saved(*worth, own, exempt)
                taken = step * steps + token * read - saved + prompts
                sure = (in_time[on] >= 0.0) & (in_time[on] < target) & (late[off] >= 0.0)
                least_s = np.where(sure, np.fmax(least_s, taken), least_s)
            return np.where(known & (least_s > 0.0), 1.0 / least_s, inf)

    def in_turns(self, own: Decoding, part: Callable[[Array], Array]) -> Array:
        """Requests/s of each mixed shape at most, where passes with prompts and passes without take turns; ``inf``: not known.

        ``part``: of the time that decoding passes take at least which last so many seconds beside what grows with their sequences.
        Beside that, each request takes what its prompt does, and what it adds to the passes it is part of: by lines as steep as from a
        pass of one sequence to a larger one, below which no pass lies.
        """
        steps, read = float(own.steps.mean()), float(own.read.mean())
        longest = float((own.read / np.maximum(own.steps, 1.0)).max()) / self.context
        most = np.where(np.isfinite(self.full), np.maximum(self.full, self.largest), self.largest)
        totals = np.geomspace(
            np.maximum(1.0, self.shapes.pp), np.maximum(most, self.shapes.pp), _TURNS
        )
        timed = {
            far: [self._in_turn(total, far) for total in totals] for far in (1.0, _FROM, longest)
        }
        counts = totals / self.shapes.pp
        prompts = np.min([one for own_s in timed.values() for _, one in own_s], axis=0)
        took = {far: np.array([one for one, _ in own_s]) for far, own_s in timed.items()}
        further = self._in_turn(self.largest, 1.0 + _STEP)[0] - self._in_turn(self.largest, 1.0)[0]
        token = np.maximum(0.0, further) / (_STEP * self.largest / self.shapes.pp * self.context)
        found = np.full(len(self.largest), inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            for place in range(1, _TURNS):
                step = (took[1.0][place] - took[1.0][0]) / (counts[place] - counts[0])
                step = np.maximum(np.nan_to_num(step - token * self.context), 0.0)
                rest = [
                    one - counts * (step + token * far * self.context) for far, one in took.items()
                ]
                floor_s = np.min(rest, axis=(0, 1))
                each_s = prompts + step * steps + token * read
                rate = np.maximum(0.0, 1.0 - part(floor_s)) / each_s
                found = np.where((floor_s >= 0.0) & (each_s > 0.0), np.minimum(found, rate), found)
        return found

    def _in_turn(self, total: Array, far: float) -> tuple[Array, Array]:
        """Seconds that a stage is busy on average with a pass of a microbatch, and with a request's prompts."""
        block = self._block(far)
        decode, prompts = self._priced_pass(block, total)
        return decode.sum_s / block.pp, prompts

    def _slopes(self) -> list[tuple[Array, Array]]:
        """Seconds that a pass takes for each sequence more, and for each token of context.

        By what the largest batch takes beyond a smaller one, for a few more, and short of one that fills HBM.
        """
        base, more = self._pass(self.largest, 1.0)[0], (1.0 + _STEP) * self.largest
        read = np.maximum(0.0, self._pass(self.largest, 1.0 + _STEP)[0] - base)
        read /= _STEP * self.largest * self.context
        further = np.isfinite(self.full) & (self.full > more)
        # with as many tokens of context as the largest batch has, but where HBM is full
        others = (
            (_AROUND[1] * self.largest, 1.0 / _AROUND[1], 0.0),
            (more, 1.0 / (1.0 + _STEP), 0.0),
            (np.where(further, self.full, more), 1.0, read * self.context),
        )
        return [
            (
                np.maximum(
                    0.0, (self._pass(other, far)[0] - base) / (other - self.largest) - apart
                ),
                read,
            )
            for other, far, apart in others
        ]

    def _least(
        self, own: Decoding, exempt: float, slopes: Sequence[tuple[Array, Array]]
    ) -> tuple[Array, Array, Array]:
        """Seconds of a pass beside what grows with sequences and contexts, at least, ``[slopes, shapes]``.

        Of passes that may be in time, and of any; and of the prompts of a request ``[shapes]``.
        """
        some = own.steps > 0
        longest = float(
            (own.held[some] / own.steps[some]).max() * own.steps.mean() / own.held.mean()
        )
        (per_step, per_read), *_ = slopes
        most = per_step + per_read * self.context
        in_time, late = (np.full((len(slopes), len(self.largest)), inf) for _ in range(2))
        prompts = np.full(len(self.largest), inf)
        left = (most_left(one, exempt) / float(one.mean()) for one in (own.read, own.steps))
        for far in (*left, 1.0, *np.geomspace(_FROM, longest, _FULL)):
            with np.errstate(divide="ignore", invalid="ignore"):
                # batches that take about as long as the largest does, by what grows
                alike = most / (per_step + per_read * self.context * far) * self.largest
            alike = np.where(np.isfinite(alike), alike, self.largest)
            for found, totals in (
                (in_time, [np.minimum(times * alike, self.full / far) for times in _AROUND]),
                (late, [self.full / far]),
            ):
                for total in totals:
                    total = np.maximum(1.0, np.where(np.isfinite(total), total, self.largest))
                    took, prompt_s = self._pass(total, far)
                    prompts = np.minimum(prompts, prompt_s)
                    for place, (step, read) in enumerate(slopes):
                        rest = took - step * total - read * total * far * self.context
                        found[place] = np.minimum(found[place], rest)
        return in_time, np.minimum(in_time, late), prompts

    def _pass(self, total: Array, far: float) -> tuple[Array, Array]:
        """Seconds from pass to pass of so many sequences at ``far`` times the mean context, and of a request's prompts."""
        block = self._block(far)
        decode, prompts = self._priced_pass(block, total)
        return decode.period_s(block.pp), prompts

    def _priced_pass(self, block: Block, total: Array) -> tuple[PipelineTime, Array]:
        """A decoding pass of a microbatch of so many sequences in all, and seconds of a request's prompts on one stage."""
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
        return decode, prompts

    def _block(self, far: float) -> Block:
        if far not in self._blocks:
            self._blocks[far] = self._priced(far)
        return self._blocks[far]

    def _priced(self, far: float) -> Block:
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
