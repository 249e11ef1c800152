"""Shapes of one role on one class of chips, priced together at any batch; see :mod:`solver.bounds.pricing`."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costmodel.question.instance import Instance
from costmodel.replica.fleet import transfer_bytes_per_chip
from costmodel.replica.serving import PipelineTime, Schedule, Service, schedule, serve
from costmodel.tolerance import RELATIVE
from solver.bounds.batches import Batch, Spread, largest_batch, take_turns
from solver.bounds.passes import Passes
from solver.bounds.priced import Array, Bounds, Ints, Priced
from solver.bounds.room import Room
from solver.shapes.shapes import ROLES

PREFILL, DECODE, MIXED = (ROLES.index(role) for role in ("prefill", "decode", "mixed"))


class Block(Passes):
    """Shapes of one role on one class."""

    def __init__(self, priced: Priced):
        super().__init__(priced)
        role = priced.role
        self.transfer = priced.transfer
        staggered = self.instance.scenario.layer_slots == "any"  # chips with one more take turns
        room = Room(
            self._kinds_held(), ROLES[role], self.chip, self.layers, self.tp, self.ranks, self.pp,
            self.whole,
        )  # fmt: skip
        self.room = room.with_slots(
            self.fewest,
            turns=(self.pp > 1) | (self.fewest < self.slots) | staggered,
            cut=self.whole == 0,
        )
        self.most: int | None = None
        #: sequences of a rank at most in any of the passes that take turns, of one shape
        self.beside: float | None = None
        #: whether targets are checked with the best cut of whole layers (dear for many shapes)
        self.exact_stages = False
        #: whether both passes of the one shape, a mixed replica in stages, are bounded on one cut
        self.one_cut = False
        self.spread = Spread(self.room, self.ranks, self._most_per_rank())

    @property
    def cut_for_both(self) -> bool:
        """Whether the shapes are mixed replicas in stages whose passes are sums over layers."""
        additive = self.instance.profile.combination == "per_op" and not self.halved.any()
        return self.role == MIXED and additive and bool((self.pp > 1).all())

    def _kinds_held(self) -> list[Instance]:
        """The kinds of requests whose passes take room in HBM."""
        return [self.instance]

    def take(self, rows: Ints) -> Self:
        """The block of some of its shapes."""
        part = super().take(rows)
        part.spread = self.spread.take(rows)
        part.room = part.spread.room
        for known in ("_one_prompt", "_room_of_rank"):
            part.__dict__.pop(known, None)
        return part

    def bounds(self) -> Bounds:
        """Largest batch, best rate, and what a single sequence would need."""
        one = np.ones(len(self.tp))
        self.spread = Spread(self.room, self.ranks, self._most_per_rank())
        alone, meets = self.service(self.spread.batch(one), exact_stages=self.exact_stages)
        short = self.room.short_bytes(one, one)
        good = meets & (short <= 0)
        strain = self._strain(alone, short)
        if self._prompts_meet:
            used = largest_batch(
                self._in_time_on, np.where(good, self.ranks, 0.0), strain,
                lambda rows: self.take(rows)._in_time_on,
            )  # fmt: skip
            self.spread = self.spread.on_ranks(np.maximum(used, 1.0))
        largest = largest_batch(
            self._feasible, np.where(good, self.spread.most, 0.0), strain,
            lambda rows: self.take(rows)._feasible,
        )  # fmt: skip
        total = np.maximum(largest, 1.0)
        rate = self._best_rate(total)
        per_rank = self.room.on_fullest(total, self.spread.used)
        return Bounds(
            per_rank=np.where(largest > 0, per_rank, 0).astype(np.int64),
            requests_per_s=np.where(largest > 0, rate, 0.0),
            fits=short <= 0,
            short_bytes=short,
            least_tpot_s=alone.tpot_s,
            least_ttft_s=alone.ttft_s,
        )

    def _best_rate(self, largest: Array) -> Array:
        """The most that any batch up to the largest serves."""
        rate = self._most_served(self.spread.at_most(largest))
        full = self.spread.full_below(largest)
        fewer = np.flatnonzero(full > 0)
        if len(fewer):
            # the last batch that is full on every rank may serve more; where HBM has no room for it, one below it may,
            # which serves less than that
            less = self.take(fewer)
            batch = less.spread.smooth(full[fewer])
            rate = rate.copy()
            rate[fewer] = np.maximum(rate[fewer], less._most_served(batch))
        if self.role != PREFILL and take_turns(self.instance):
            rate = np.maximum(rate, self._in_turns(largest))
        return rate

    def _most_served(self, batch: Batch, service: Service | None = None) -> Array:
        """Requests/s at a batch with the best cut; of one mixed replica both passes have one (``one_cut``).

        ``service``: with a cut for each pass, where it is known.
        """
        if not self.one_cut:
            service = service or self.service(batch, exact_stages=True)[0]
            return service.requests_per_s
        plan = self._plan(batch)
        assert plan.decode is not None
        assert plan.prefill is not None
        passes = [
            replace(pipeline, max_s=np.maximum(pipeline.max_s, longest))
            for pipeline, longest in zip(
                [
                    self.pipeline(tokens, exact_stages=False)
                    for tokens in (plan.decode, plan.prefill)
                ],
                self.on_one_cut(plan.decode, plan.prefill),
                strict=True,
            )
        ]
        cut = serve(self.instance.workload, plan, batch.total, self.pp, *passes)
        return np.full(1, np.max(cut.requests_per_s, initial=0.0))

    def _in_turns(self, largest: Array) -> Array:
        """The most that batches of unlike sizes serve in turns, whose tokens meet the TPOT target on average."""
        # entered where it is asked for, and nowhere else
        from solver.bounds.unlike import most_in_turns, sizes

        target = self.instance.slo.tpot
        assert target is not None
        most = self._allowed_per_rank()
        if self.beside is not None:
            most = np.minimum(most, self.beside)
        took, tpot = [], []
        for total in sizes(largest, self.spread.used, self.pp):
            service = self.service(self.spread.batch(total), exact_stages=True)[0]
            fullest = self.room.on_fullest(total, self.spread.used)
            holds = (self.room.short_bytes(total, fullest) <= 0) & (fullest <= most)
            holds |= total <= largest
            served = self._most_served(self.spread.batch(total), service)
            took.append(np.where(holds, 1.0 / served, np.inf))
            tpot.append(np.asarray(service.tpot_s))
        return most_in_turns(np.array(took), np.array(tpot), target * (1 + RELATIVE))

    def _in_time_on(self, ranks: Array) -> tuple[NDArray[np.bool_], Array]:
        """Whether one sequence on each of so many ranks holds: all their prompts may meet in one pass."""
        one = np.ones_like(ranks)
        service, meets = self.service(Batch(ranks, one, ranks), together=True)
        short = self.room.short_bytes(ranks, one)
        return meets & (short <= 0), self._strain(service, short)

    @property
    def _prompts_meet(self) -> bool:
        """Whether prompts of several ranks in one pass delay a first token."""
        mixed = self.role == MIXED and self.experts is not None
        return mixed and self.instance.slo.ttft is not None and bool((self.ranks > 1).any())

    def _most_per_rank(self) -> Array:
        """Sequences of one rank at most, over all microbatches; no more than are looked for."""
        most = self._allowed_per_rank()
        return most if self.most is None else np.asarray(np.minimum(most, float(self.most)))

    def _allowed_per_rank(self) -> Array:
        """Sequences of one rank at most, over all microbatches."""
        limits, workload = self.instance.limits, self.instance.workload
        most = np.full(len(self.tp), float(limits.max_sequences_per_rank))
        if self.role == PREFILL:
            most = np.minimum(most, self.pp * limits.prompts_in_pass(workload))
        else:
            most = np.asarray(np.minimum(most, self.pp * self.rates.most_sequences))
        return most

    def _feasible(self, total: Array) -> tuple[NDArray[np.bool_], Array]:
        """HBM, TPOT and TTFT: all of them grow with the batch; and how near their limits they are."""
        service, meets = self.service(self.spread.batch(total), exact_stages=self.exact_stages)
        fullest = self.room.on_fullest(total, self.spread.used)
        short = self.room.short_bytes(total, fullest)
        good = meets & (short <= 0) & (fullest <= self.spread.per_rank)
        return np.asarray(good), self._strain(service, short)

    def _strain(self, service: Service, short: Array) -> Array:
        """Largest of HBM, TPOT and TTFT as fractions of what is allowed."""
        strain, slo = 1.0 + short / self.room.usable_bytes, self.instance.slo
        if slo.tpot is not None and self.role != PREFILL:
            strain = np.maximum(strain, service.tpot_s / slo.tpot)
        if slo.ttft is not None and self.role != DECODE:
            strain = np.maximum(strain, service.ttft_s / slo.ttft)
        return strain

    def _in_time(self, service: Service) -> NDArray[np.bool_]:
        """Whether TPOT and TTFT hold, up to the rounding that the evaluator grants."""
        slo, meets = self.instance.slo, np.ones(len(self.tp), dtype=bool)
        if slo.tpot is not None and self.role != PREFILL:
            meets &= service.tpot_s <= slo.tpot * (1 + RELATIVE)
        if slo.ttft is not None and self.role != DECODE:
            meets &= service.ttft_s <= slo.ttft * (1 + RELATIVE)
        return meets

    def service(
        self, batch: Batch, *, exact_stages: bool = False, together: bool = False
    ) -> tuple[Service, NDArray[np.bool_]]:
        """What the shapes offer at a batch, and whether the targets hold.

        Stages are bounded by their average, or (``exact_stages``) by the best cut of whole layers.
        ``together``: TTFT counts the prompts of all ranks that have any; else those of which any batch of
        so many sequences has as many.
        """
        instance, plan = self.instance, self._plan(batch)
        decode = None if plan.decode is None else self.pipeline(plan.decode, exact_stages)
        prefill = None if plan.prefill is None else self.pipeline(plan.prefill, exact_stages)
        met = prefill
        if prefill is not None and self._prompts_meet and not together:
            met = self._first_met(plan, prefill, batch.total)
        sequences = batch.total / self.pp if self.role == PREFILL else batch.total
        service = serve(instance.workload, plan, sequences, self.pp, decode, prefill, met)
        if self.role == PREFILL:
            moved = transfer_bytes_per_chip(instance, 1.0, 1.0) / (self.tp * self.pp)
            service = service.delayed(self.transfer.latency_s + self.transfer.s_per_byte * moved)
        return service, self._in_time(service)

    def _plan(self, batch: Batch) -> Schedule:
        """The passes at a batch."""
        instance = self.instance
        return schedule(
            ROLES[self.role], instance.workload, instance.limits, batch.per_rank,
            instance.speculative,
        ).filled(batch.in_pass / (batch.per_rank * self.ranks))  # fmt: skip

    def _first_met(self, plan: Schedule, prefill: PipelineTime, total: Array) -> PipelineTime:
        """The prefill pass that a first token meets at least, whatever ranks the sequences lie on.

        As many prompts as finish in a decode pass where that is one or more to a rank, else one on each of as few ranks
        as have room for ``total`` sequences.
        """
        ranks = np.clip(np.ceil(total / self._room_of_rank), 1.0, self.ranks)
        alone = self._one_prompt if (ranks == 1).all() else self._prompt_on_each(ranks)
        at_once = float(max(1, self.instance.workload.prompts_together))
        sure = (plan.events * plan.prompts >= at_once) | (self.ranks == 1)
        pairs = zip(
            (prefill.sum_s, prefill.max_s, prefill.hop_s),
            (alone.sum_s, alone.max_s, alone.hop_s),
            strict=True,
        )
        return PipelineTime(*(np.where(sure, own, least) for own, least in pairs))

    @cached_property
    def _one_prompt(self) -> PipelineTime:
        """Times of a prefill pass with one prompt on one of the ranks."""
        return self._prompt_on_each(np.ones(len(self.tp)))

    @cached_property
    def _room_of_rank(self) -> Array:
        """Sequences that one rank holds at most, by HBM and what the question allows, however many lie on others."""
        most = float(self.instance.limits.max_sequences_per_rank)
        room = self.room.most(self.room.low, np.ones_like(self.pp))
        return np.maximum(
            1.0, np.minimum(np.minimum(most, room), self.pp * self.rates.most_sequences)
        )

    def _prompt_on_each(self, ranks: Array) -> PipelineTime:
        """Times of a prefill pass with one prompt on each of so many ranks."""
        instance, one = self.instance, np.ones(len(self.tp))
        plan = schedule(
            ROLES[self.role], instance.workload, instance.limits, one, instance.speculative
        ).filled(ranks / self.ranks)
        assert plan.prefill is not None
        return self.pipeline(plan.prefill, exact_stages=False)
