"""Measured rows as passes to price: how many sequences decode, and what prefill takes from them.

Concurrency counts requests in the system; the decoding batch is what is left after those that wait
or prefill (Little's law), and at most what fits in HBM. An aggregated worker is the mixed replica of
:mod:`costmodel.replica.serving`, a disaggregated one a decode and a prefill replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.terms import (
    PassTerms,
    TermTable,
    term_table,
    terms_of_pass,
)
from costmodel.measured.rows import Group, MeasuredRow, Skipped
from costmodel.measured.systems import instance_of
from costmodel.measured.usable_hbm import RESERVES, most_hbm_bytes, sequences_hbm_bytes
from costmodel.passes.communication import GroupRates, rates_of_chips
from costmodel.question.instance import Instance
from costmodel.question.profile import Efficiency
from costmodel.replica import memory
from costmodel.replica.serving import Schedule, schedule
from topology.errors import InstanceError

Array = NDArray[np.float64]

#: engines that prefill all waiting requests before they decode on. ATOM: "a prefill-first scheduler", its scheduling guide,
#: https://rocm.docs.amd.com/projects/atom/en/latest/scheduling_kv_cache_guide.html
PREFILL_FIRST = ("atom", "sglang")
#: engines whose limit on the tokens of a prefill pass is for all attention ranks together
COUNTS_ALL_RANKS = ("sglang",)
#: engines that were never fitted and whose constants they share: ATOM is built of AMD's kernels, which join normalisation, quantisation
#: and all-reduce, by AMD for its own chips, as TensorRT-LLM is of NVIDIA's
MADE_LIKE = {"atom": "trtllm"}


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

    @property
    def priced_as(self) -> str:
        """The engine whose constants price the run."""
        return MADE_LIKE.get(self.row.engine, self.row.engine)

    def with_row(self, row: MeasuredRow) -> Run:
        """The run of a row that has the same passes; those that are known are kept."""
        found = replace(self, row=row)
        kept = ("_passes", "full_prefill", "_own_prefill")
        vars(found).update({name: vars(self)[name] for name in kept if name in vars(self)})
        return found

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
    def full_prefill(self) -> tuple[PassTerms, float, float]:
        """A prefill worker's pass when prompts wait, how many such passes its prompts need, and the prompts."""
        assert self.row.prefill is not None
        assert self.prefill_rates is not None
        group, workload, limits = self.row.prefill, self.instance.workload, self.instance.limits
        budget = group.settings.chunk_tokens or float(limits.prefill_chunk_tokens)
        if self.row.engine in COUNTS_ALL_RANKS:
            budget /= group.attention_dp
        together = max(1.0, budget // workload.new_tokens)
        room = running(group, self.row.engine) / group.attention_dp
        plan = schedule("prefill", workload, limits, max(1.0, min(together, room)))
        assert plan.prefill is not None
        terms = terms_of_pass(self.instance, group, self.prefill_rates, plan.prefill)
        return terms, float(plan.passes), float(plan.prompts) * group.attention_dp

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

    for asked in rows:
        row = asked
        try:
            instance = instance_of(row, "physics")
            row = replace(row, decode=_divided(row.decode, instance))
            most = sequences_that_fit(instance, row.decode, row.engine)
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


def worker_rates(instance: Instance, group: Group, first_chip: int) -> GroupRates:
    """Rates of a worker on the chips a plain layout gives it, at the links' full speed."""
    moe = instance.operations.moe
    width = group.tp * group.attention_dp
    chips = [placed.id for placed in instance.cluster.usable][first_chip:]
    stages = [chips[i * width : (i + 1) * width] for i in range(group.pp)]
    return rates_of_chips(
        instance.cluster, stages, group.tp, moe.top_k if moe else 0, Efficiency()
    )[0]


def _divided(group: Group, instance: Instance) -> Group:
    """The group; where its chips do not divide the attention heads, each of them is an attention rank, whatever exports say."""
    heads = {one.query_heads for kind in instance.operations.kinds for one in kind.attentions}
    if group.attention_dp > 1 or all(number % group.tp == 0 for number in heads):
        return group
    return replace(group, tp=1, attention_dp=group.tp, expert_ways=group.chips)


def sequences_that_fit(instance: Instance, group: Group, engine: str) -> float:
    """Sequences that one worker decodes together: what its recipe allows, and what the HBM holds that weights leave.

    KV is paged, so that a sequence takes its mean length, or its last where the engine reserves that; not whole.
    """
    operations = instance.operations
    layers = [(kind, float(len(kind.layers))) for kind in operations.kinds]
    chip = instance.cluster.usable[0].chip
    width = group.tp * group.attention_dp
    held = float(memory.dense_weight_bytes(layers, group.tp)) / group.pp
    held += float(memory.edge_weight_bytes(operations, group.tp, first=True, last=True))
    if operations.moe is not None:
        slots = -(-(operations.moe.num_experts + group.settings.redundant_experts) // width)
        held += float(memory.expert_slot_bytes(layers)) * slots / group.pp
    workload = instance.workload
    context = float(workload.final_context) if engine in RESERVES else workload.decode_context
    per_sequence = float(memory.kv_bytes_per_sequence(operations, layers, group.tp, context))
    given, room = sequences_hbm_bytes(chip, group, engine, held), most_hbm_bytes(chip, held)
    usual, most = (one / max(per_sequence, 1.0) for one in (given, room))
    # a worker that has been run held something
    held_by_rank = max(0.0, usual, min(1.0, most))
    return min(held_by_rank * group.attention_dp, running(group, engine))


def running(group: Group, engine: str) -> float:
    """Sequences that a worker's recipe lets decode together; TensorRT-LLM counts by attention rank."""
    most = group.settings.running
    if most is None:
        return float("inf")
    return most * (group.attention_dp if engine in RESERVES else 1)


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


@dataclass(frozen=True)
class FullPools:
    """Passes of prefill pools in which prompts wait, of the runs at ``places``; per worker ``prompts`` in ``repeats`` passes."""

    terms: TermTable
    places: NDArray[np.intp]
    repeats: Array
    prompts: Array

    def prompts_per_s(self, seconds: Array) -> Array:
        """Prompts that one worker prefills per second, from the seconds of every pass."""
        return np.asarray(self.prompts / (self.repeats * seconds))


def full_pools(runs: Sequence[Run]) -> FullPools:
    """The full passes of the runs that have a prefill pool."""
    places = [place for place, run in enumerate(runs) if run.row.prefill is not None]
    found = [runs[place].full_prefill for place in places]
    figures = np.array([one[1:] for one in found], dtype=float).reshape(-1, 2).T
    return FullPools(
        term_table([terms for terms, _, _ in found]), np.array(places, dtype=np.intp), *figures
    )
