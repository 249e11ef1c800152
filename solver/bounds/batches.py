r"""Batches of shapes: how many sequences, and how they lie at best on attention ranks and microbatches.

A pass takes longer the more sequences its busiest rank has and the more all ranks have together, and nothing else
about a batch matters. So of all batches of ``S`` sequences on ``R`` ranks with ``P`` microbatches the quickest has
``ceil(S / R)`` on the fullest rank (more where HBM is unevenly full, see :mod:`solver.bounds.room`), ``k`` = that over
``P``, rounded up, of them in the fullest microbatch, and ``W = ceil(S / P)`` of all in it; with ``k = 1``, where HBM or a
limit lets a rank have only ``N < P``, ``W = ceil(S / N)``. Both grow with ``S``: what is good stays good with fewer.

Requests per second are ``S`` over a period that only ``k`` and ``W`` decide, and that grows slower than they do. Within
one ``k`` they grow with ``S``; where ``k`` grows they may fall. So the most that any batch of up to ``S`` sequences serves
is served by ``S``, with ``W`` not rounded up, or by the last batch with ``k - 1`` everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costmodel.question.instance import Instance
from solver.bounds.room import Room

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

#: whether shapes are good at a batch each, and how near their limits they are (1: at one of them)
Probe = Callable[[Array], tuple[NDArray[np.bool_], Array]]


def take_turns(instance: Instance) -> bool:
    """Whether batches of unlike sizes may take turns to meet a TPOT target on average (:mod:`solver.bounds.unlike`)."""
    spread = instance.workload.spread
    return spread is not None and spread.in_turns and instance.slo.tpot is not None


@dataclass(frozen=True)
class Batch:
    """A batch of each shape (arrays of one length).

    ``total``: sequences (decode, mixed) or prompts (prefill) over all ranks and microbatches. ``per_rank``: of the
    busiest rank in the fullest microbatch; ``in_pass``: of all ranks in it.
    """

    total: Array
    per_rank: Array
    in_pass: Array


@dataclass(frozen=True)
class Spread:
    """How batches lie on shapes: on ``used`` of the ranks, at most ``per_rank`` sequences on each."""

    room: Room
    used: Array
    per_rank: Array

    def on_ranks(self, used: Array) -> Self:
        """The same where sequences lie on fewer ranks."""
        return replace(self, used=used)

    def take(self, rows: NDArray[np.intp]) -> Self:
        """How batches lie on some of the shapes."""
        return replace(
            self, room=self.room.take(rows), used=self.used[rows], per_rank=self.per_rank[rows]
        )

    @property
    def most(self) -> Array:
        """Sequences over all ranks at most."""
        return np.asarray(self.used * self.per_rank)

    @cached_property
    def alone(self) -> Array:
        """Sequences of a rank at most that has one in each microbatch, or none."""
        pp = self.room.pp
        if not (pp > 1).any():
            return pp
        most = self.room.most(self.room.low, np.ones_like(pp))
        return np.asarray(np.clip(np.minimum(most, self.per_rank), 1.0, pp))

    def batch(self, total: Array) -> Batch:
        """The quickest batch of so many sequences."""
        per_rank = np.ceil(self.room.on_fullest(total, self.used) / self.room.pp)
        in_turn = np.where(per_rank > 1, self.room.pp, self.alone)
        return Batch(total, per_rank, np.ceil(total / in_turn))

    def at_most(self, total: Array) -> Batch:
        """What serves no less than any batch of up to so many sequences and more than :meth:`full_below`.

        Where HBM is unevenly full, no less than any at all: sequences lie as if HBM were even.
        """
        fullest = self.room.on_fullest(total, self.used)
        even = total / self.used / self.room.pp
        per_rank = np.where(
            fullest > np.ceil(total / self.used),
            np.maximum(1.0, even),
            np.ceil(fullest / self.room.pp),
        )
        return Batch(total, per_rank, total / np.where(per_rank > 1, self.room.pp, self.alone))

    def smooth(self, total: Array) -> Batch:
        """What serves no less than any batch of up to so many sequences; more sequences serve more."""
        per_rank = np.maximum(1.0, total / (self.used * self.room.pp))
        return Batch(total, per_rank, total / self.room.pp)

    def full_below(self, total: Array) -> Array:
        """Sequences of the last batch that is full in every microbatch of all ranks, if ``total`` is above (else 0)."""
        each = self.used * self.room.pp
        full = np.floor(total / each) * each
        return np.where(full < total, full, 0.0)


def largest_batch(
    probe: Probe,
    most: Array,
    strain_at_one: Array,
    narrowed: Callable[[Ints], Probe] | None = None,
) -> Array:
    """Largest whole batch up to ``most`` that is good, given that 1 is (``most`` 0: none is).

    What is good stays good with fewer sequences, so that any probe between a good and a bad batch halves
    the doubt for certain; the strain only says where to probe, and every third probe is in the middle.
    ``narrowed``: the probe of some shapes alone, for those left once half of them are settled.
    """
    low, low_strain = np.minimum(most, 1.0), strain_at_one + 0.0
    good, strain = probe(np.maximum(most, 1.0))
    low = np.where(good & (most > 0), most, low)
    high, high_strain = most + 0.0, strain + 0.0
    high = np.where(low == most, most + 1.0, most)
    rows = np.arange(len(most))
    turn = 0
    while len(left := np.flatnonzero(high - low > 1)):
        if narrowed is not None and 2 * len(left) <= len(rows):
            rows, probe = left, narrowed(left)
        turn += 1
        under, over = low[rows], high[rows]
        middle = (under + over) / 2
        if turn % 3:
            with np.errstate(divide="ignore", invalid="ignore"):
                share = (1.0 - low_strain[rows]) / (high_strain[rows] - low_strain[rows])
            middle = np.where(np.isfinite(share), under + share * (over - under), middle)
        at = np.clip(np.floor(middle), under + 1, np.maximum(over - 1, under + 1))
        open_ = over - under > 1
        at = np.maximum(np.where(open_, at, under), 1.0)
        good, strain = probe(at)
        better, worse = open_ & good, open_ & ~good
        low[rows[better]], low_strain[rows[better]] = at[better], strain[better]
        high[rows[worse]], high_strain[rows[worse]] = at[worse], strain[worse]
    return low
