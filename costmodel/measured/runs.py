"""Measured rows as passes to price: how many sequences decode, and what prefill takes from them.

Concurrency counts requests in the system; the decoding batch is what is left after those that wait
or prefill (Little's law), and at most what fits in HBM. An aggregated worker is the mixed replica of
:mod:`costmodel.replica.serving`, a disaggregated one a decode and a prefill replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.terms import (
    PassTerms,
    TermTable,
    term_table,
    terms_of_pass,
    worker_rates,
)
from costmodel.measured.rows import Group, MeasuredRow, Skipped
from costmodel.measured.systems import instance_of
from costmodel.passes.communication import GroupRates
from costmodel.question.instance import Instance
from costmodel.replica import memory
from costmodel.replica.serving import Schedule, schedule
from topology.errors import InstanceError

Array = NDArray[np.float64]

#: share of HBM that engines give to weights and KV together, and the most that is ever given
_USABLE_HBM, _MOST_HBM = 0.9, 0.96


@dataclass(frozen=True)
class RunPasses:
    """The passes of a run at one batch; ``figures``: as in :class:`RunTable`, ``repeats`` to ``prefill_stages``."""

    decode: PassTerms
    prefill: PassTerms
    figures: tuple[float, float, float, float, float]


@dataclass(frozen=True)
class Run:
    """A row with all that its price needs but the batch.

    ``most``: sequences of one decode worker that fit in HBM at their mean length.
    """

    row: MeasuredRow
    instance: Instance
    chip: str
    decode_rates: GroupRates
    prefill_rates: GroupRates | None
    most: float

    def passes(self, batch: float) -> RunPasses:
        """The passes with ``batch`` sequences decoding in each decode worker; those of a batch are found once."""
        if batch not in self._passes:
            mixed = self.row.prefill is None
            self._passes[batch] = self._mixed(batch) if mixed else self._apart(batch)
        return self._passes[batch]

    @cached_property
    def _passes(self) -> dict[float, RunPasses]:
        return {}

    def _plan(self, role: str, batch: float) -> Schedule:
        per_rank = batch / self.row.decode.attention_dp / self.row.decode.pp
        return schedule(role, self.instance.workload, self.instance.limits, per_rank)

    def _mixed(self, batch: float) -> RunPasses:
        """Of a worker that does both."""
        group, plan = self.row.decode, self._plan("mixed", batch)
        assert plan.decode is not None
        assert plan.prefill is not None
        prompts = float(plan.prompts) * group.attention_dp
        return RunPasses(
            terms_of_pass(self.instance, group, self.decode_rates, plan.decode),
            terms_of_pass(self.instance, group, self.decode_rates, plan.prefill),
            (float(plan.passes), float(plan.events), prompts, group.pp, group.pp),
        )

    def _apart(self, batch: float) -> RunPasses:
        """Of a decode and a prefill worker."""
        row, plan = self.row, self._plan("decode", batch)
        assert row.prefill is not None
        assert plan.decode is not None
        prefill, passes = self._own_prefill
        return RunPasses(
            terms_of_pass(self.instance, row.decode, self.decode_rates, plan.decode),
            prefill,
            (passes, 0.0, row.prefill.attention_dp, row.decode.pp, row.prefill.pp),
        )

    @cached_property
    def _own_prefill(self) -> tuple[PassTerms, float]:
        """A prefill worker's pass, and how many a prompt needs."""
        assert self.row.prefill is not None
        assert self.prefill_rates is not None
        plan = schedule("prefill", self.instance.workload, self.instance.limits, 1.0)
        assert plan.prefill is not None
        terms = terms_of_pass(self.instance, self.row.prefill, self.prefill_rates, plan.prefill)
        return terms, float(plan.passes)


def runs_of(rows: Sequence[MeasuredRow]) -> tuple[list[Run], list[Skipped]]:
    """Rows that can be priced, and those that cannot with the reason."""
    runs: list[Run] = []
    skipped: list[Skipped] = []
    rates: dict[tuple[object, ...], GroupRates] = {}

    def cached(instance: Instance, group: Group, first: int) -> GroupRates:
        moe = instance.operations.moe
        key = (instance.cluster.name, len(instance.cluster.chips), group.tp, group.attention_dp,
               group.pp, first, moe.top_k if moe else 0)  # fmt: skip
        if key not in rates:
            rates[key] = worker_rates(instance, group, first)
        return rates[key]

    for row in rows:
        try:
            instance = instance_of(row, "physics")
            most = sequences_that_fit(instance, row.decode)
            if most < 1:
                problem = f"one sequence does not fit in HBM of {row.decode.chips} chips"
                skipped.append(Skipped(row.id, problem))
                continue
            decode = cached(instance, row.decode, 0)
            prefill = None
            if row.prefill is not None:
                prefill = cached(instance, row.prefill, row.decode.chips)
            chip = instance.cluster.usable[0].chip.name
            runs.append(Run(row, instance, chip, decode, prefill, most))
        except InstanceError as error:
            skipped.append(Skipped(row.id, str(error).splitlines()[0]))
    return runs, skipped


def sequences_that_fit(instance: Instance, group: Group) -> float:
    """Sequences of mean length in the HBM that a worker's weights leave; paged, so not whole answers."""
    operations = instance.operations
    layers = [(kind, float(len(kind.layers))) for kind in operations.kinds]
    chip = instance.cluster.usable[0].chip
    width = group.tp * group.attention_dp
    held = float(memory.dense_weight_bytes(layers, group.tp)) / group.pp
    held += float(memory.edge_weight_bytes(operations, group.tp, first=True, last=True))
    if operations.moe is not None:
        slots = -(-operations.moe.num_experts // width)
        held += float(memory.expert_slot_bytes(layers)) * slots / group.pp
    context = instance.workload.decode_context
    per_sequence = float(memory.kv_bytes_per_sequence(operations, layers, group.tp, context))
    ways = max(per_sequence, 1.0)
    usual, most = ((share * chip.hbm_bytes - held) / ways for share in (_USABLE_HBM, _MOST_HBM))
    # a worker that has been run held something
    return max(0.0, usual, min(1.0, most)) * group.attention_dp


@dataclass(frozen=True)
class RunTable:
    """Passes of runs at given batches: the terms, and how a row's figures come from its passes.

    ``decode``/``prefill``: numbers of the passes; ``repeats``: prefill passes per batch of prompts,
    ``events``: such batches per decode pass (0 where prefill has its own workers); ``prompts`` per
    prefill batch and worker. ``batches``: sequences that decode in each decode worker.
    """

    terms: TermTable
    decode: NDArray[np.intp]
    prefill: NDArray[np.intp]
    repeats: Array
    events: Array
    prompts: Array
    stages: Array
    prefill_stages: Array
    batches: Array

    def tpot_s(self, seconds: Array) -> Array:
        """Seconds per output token of every run, from the seconds of every pass."""
        return np.asarray(seconds[self.decode] + self.events * self.prefill_s(seconds))

    def prefill_s(self, seconds: Array) -> Array:
        """Seconds that one batch of prompts takes from first to last pass."""
        return np.asarray(self.repeats * seconds[self.prefill])


def run_table(runs: Sequence[Run], batches: Array) -> RunTable:
    """Passes of the runs, ``batches`` sequences decoding in each of their decode workers."""
    found = [run.passes(float(batch)) for run, batch in zip(runs, batches, strict=True)]
    figures = np.array([one.figures for one in found], dtype=float).reshape(-1, 5).T
    repeats, events, prompts, stages, prefill_stages = figures
    first = 2 * np.arange(len(found))
    return RunTable(
        terms=term_table([terms for one in found for terms in (one.decode, one.prefill)]),
        decode=first,
        prefill=first + 1,
        repeats=repeats,
        events=events,
        prompts=prompts,
        stages=stages,
        prefill_stages=prefill_stages,
        batches=batches,
    )
