"""Measured rows as passes to price: how many sequences decode, and what prefill takes from them.

Concurrency counts requests in the system; the decoding batch is what is left after those that wait
or prefill (Little's law), and at most what fits in HBM. An aggregated worker is the mixed replica of
:mod:`costmodel.serving`, a disaggregated one a decode and a prefill replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel import memory
from costmodel.communication import GroupRates
from costmodel.instance import Instance
from costmodel.measured.rows import Group, MeasuredRow, Skipped
from costmodel.measured.systems import instance_of
from costmodel.measured.terms import TermCollector, TermTable, worker_rates
from costmodel.serving import schedule
from topology.errors import InstanceError

Array = NDArray[np.float64]

#: share of HBM that engines give to weights and KV together, and the most that is ever given
_USABLE_HBM, _MOST_HBM = 0.9, 0.96


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
    collector = TermCollector()
    found: list[tuple[float, ...]] = []
    for run, batch in zip(runs, batches, strict=True):
        row, instance = run.row, run.instance
        per_rank = float(batch) / row.decode.attention_dp / row.decode.pp
        role = "mixed" if row.prefill is None else "decode"
        plan = schedule(role, instance.workload, instance.limits, per_rank)
        assert plan.decode is not None
        decode = collector.add(instance, row.decode, run.decode_rates, plan.decode)
        if row.prefill is not None:
            assert run.prefill_rates is not None
            own = schedule("prefill", instance.workload, instance.limits, 1.0)
            assert own.prefill is not None
            prefill = collector.add(instance, row.prefill, run.prefill_rates, own.prefill)
            found.append(
                (
                    decode,
                    prefill,
                    float(own.passes),
                    0.0,
                    row.prefill.attention_dp,
                    row.decode.pp,
                    row.prefill.pp,
                )
            )
        else:
            assert plan.prefill is not None
            prefill = collector.add(instance, row.decode, run.decode_rates, plan.prefill)
            prompts = float(plan.prompts) * row.decode.attention_dp
            found.append(
                (
                    decode,
                    prefill,
                    float(plan.passes),
                    float(plan.events),
                    prompts,
                    row.decode.pp,
                    row.decode.pp,
                )
            )
    columns = np.array(found, dtype=float).reshape(-1, 7).T
    return RunTable(
        terms=collector.table(),
        decode=columns[0].astype(np.intp),
        prefill=columns[1].astype(np.intp),
        repeats=columns[2],
        events=columns[3],
        prompts=columns[4],
        stages=columns[5],
        prefill_stages=columns[6],
        batches=batches,
    )
