"""One replica priced: time by part, memory by kind, what it offers. Used by evaluation alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import Layout, Replica
from costmodel.passes.communication import (
    GroupRates,
    crossing,
    exchange_rate,
    hand_off_s,
    joined,
    ranks_of,
    stacked_rates_of_chips,
)
from costmodel.passes.pass_sums import Term
from costmodel.passes.pass_time import reductions_of
from costmodel.passes.routed import dispatch_element_bytes
from costmodel.passes.tokens import Tokens
from costmodel.question.instance import Instance
from costmodel.question.speculation import draft_runs
from costmodel.replica.exchanges import moved_in
from costmodel.replica.serving import PipelineTime, Schedule, Service, schedule, serve
from costmodel.replica.stage_memory import stage_memory
from costmodel.replica.stage_times import StagePass, StageTimes, stage_layers, stage_times

Array = NDArray[np.float64]

#: kinds of bytes in a chip's HBM
MEMORY_KINDS = ("weights", "experts", "kv", "activations", "runtime")


@dataclass(frozen=True)
class StagePrice:
    """One stage: seconds by part per round, and per-chip bytes by kind ``[chips]``.

    A round is one token of every sequence (decode, mixed: with its share of prefill passes) or one
    pass of prompts (prefill). ``imbalance``: busiest chip's share of routed tokens times the chips,
    mean over MoE layers.
    """

    parts: dict[str, float]
    memory: dict[str, Array]
    imbalance: float

    @cached_property
    def used_bytes(self) -> Array:
        """Bytes of each chip's HBM in use, all kinds together ``[chips]``."""
        return sum(self.memory.values(), start=np.zeros(()))


@dataclass(frozen=True)
class StageTerms:
    """What the passes of one stage (``decode``, ``prefill``) are made of, on its slowest chip type."""

    slowest_chip: str
    passes: dict[str, list[Term]]


@dataclass(frozen=True)
class ReplicaPrice:
    """One replica: its stages, what it offers, and the bytes it sends between domains.

    ``egress_bytes_per_s``: leaving each domain (and entering it) at full load, by domain index in order of
    first use (experts, hand-off); ``far_bytes_per_s``: what of it leaves the domain's unit.
    """

    stages: tuple[StagePrice, ...]
    service: Service
    egress_bytes_per_s: dict[int, float]
    far_bytes_per_s: dict[int, float]


def replica_schedule(instance: Instance, replica: Replica) -> Schedule:
    """Passes of a replica in its fullest microbatch; its busiest attention rank decides."""
    ranks = replica.rank_sequences()
    in_pass = [-(-sequences // replica.shape.pp) for sequences in ranks]
    most = max(in_pass, default=0)

    def passes(per_rank: float | list[int]) -> Schedule:
        return schedule(
            replica.role, instance.workload, instance.limits, per_rank, instance.speculative
        )

    plan = passes(float(most))
    if sum(in_pass) == most * len(ranks):
        return plan
    fill = sum(in_pass) / (most * len(ranks))
    if replica.role != "mixed":
        return plan.filled(fill)
    prompts = passes([count for count in in_pass if count]).prompts
    return plan.filled(fill, float(prompts.sum() / (plan.prompts * len(ranks))))


def price_replica(instance: Instance, layout: Layout, replica: Replica) -> ReplicaPrice:
    """Price a structurally sound replica."""
    (price,) = price_replicas(instance, layout, [replica])
    return price


def price_replicas(
    instance: Instance, layout: Layout, replicas: Sequence[Replica]
) -> list[ReplicaPrice]:
    """Price structurally sound replicas, the passes of all of them at once."""
    plans = [replica_schedule(instance, replica) for replica in replicas]
    rates = [replica_rates(instance, replica) for replica in replicas]
    own: list[list[tuple[str, Tokens, float]]] = []
    passes: list[StagePass] = []
    for replica, plan, of_stages in zip(replicas, plans, rates, strict=True):
        prefills = float(plan.events * plan.passes) if plan.decode else 1.0
        every = (
            ("decode", plan.decode, 1.0),
            ("prefill", plan.prefill, prefills),
            ("together", plan.together, 0.0),
        )
        own.append([(name, tokens, weight) for name, tokens, weight in every if tokens is not None])
        passes += [StagePass(replica, tokens, of_stages) for _, tokens, _ in own[-1]]
    timed = iter(stage_times(instance, layout, passes))
    return [
        _priced(instance, replica, plan, of_stages, [(*one, next(timed)) for one in run])
        for replica, plan, of_stages, run in zip(replicas, plans, rates, own, strict=True)
    ]


def _priced(
    instance: Instance,
    replica: Replica,
    plan: Schedule,
    rates: GroupRates,
    passes: Sequence[tuple[str, Tokens, float, StageTimes]],
) -> ReplicaPrice:
    """One replica from the times of its passes: name, tokens, how often in a round, times."""
    times: dict[str, PipelineTime] = {}
    parts: dict[str, Array] = {}
    imbalance = np.ones(len(replica.stages))
    sent_rows = draft_rows = 0.0
    for name, tokens, weight, timed in passes:
        rows = float(tokens.rows)
        hop_s = all_hand_offs_s(instance, replica, rates, rows)
        times[name] = PipelineTime(
            np.asarray(timed.total_s.sum()), np.asarray(timed.total_s.max()), np.asarray(hop_s)
        )
        if name == "together":  # no pass of its own, but one that a first token may meet
            continue
        imbalance = timed.imbalance
        for part, seconds in timed.parts.items():
            own = weight * seconds if weight != 1.0 else seconds
            parts[part] = parts[part] + own if part in parts else own
        sent_rows += weight * rows
        if instance.operations.draft is not None:
            runs = draft_runs(instance.operations.draft, tokens)
            draft_rows += weight * sum(float(times * run.rows) for times, run in runs)
    pp = replica.shape.pp
    in_flight = replica.shape.batch / pp if replica.role == "prefill" else replica.shape.batch
    service = serve(
        instance.workload, plan, in_flight, pp, times.get("decode"), times.get("prefill"),
        times.get("together"),
    )  # fmt: skip
    round_s = (
        float(service.tpot_s) * plan.emitted / pp if plan.decode else float(times["prefill"].max_s)
    )
    held = stage_memory(instance, replica, plan)
    by_stage = zip(*(seconds.tolist() for seconds in parts.values()), strict=True)
    stages = tuple(
        StagePrice(dict(zip(parts, seconds, strict=True)), bytes_of, skew)
        for seconds, bytes_of, skew in zip(by_stage, held, imbalance.tolist(), strict=True)
    )
    egress = _egress(instance, replica, joined(rates), sent_rows, draft_rows, round_s)
    return ReplicaPrice(stages, service, *egress)


def stage_terms(instance: Instance, layout: Layout, replica: Replica) -> list[StageTerms]:
    """What the passes of each stage are made of, for those who want to look inside a price."""
    plan = replica_schedule(instance, replica)
    rates = replica_rates(instance, replica)
    passes = {"decode": plan.decode, "prefill": plan.prefill}
    timed = {
        name: stage_times(instance, layout, [StagePass(replica, tokens, rates)], record=True)[0]
        for name, tokens in passes.items()
        if tokens is not None
    }
    return [
        StageTerms(
            next(iter(timed.values())).slowest_chip[index],
            {name: times.terms_of(index) for name, times in timed.items()},
        )
        for index in range(len(replica.stages))
    ]


def replica_rates(instance: Instance, replica: Replica) -> GroupRates:
    """Rates of every stage ``[stages]``."""
    moe = instance.operations.moe
    first_chip = instance.cluster.chip(replica.stages[0].chips[0])
    return stacked_rates_of_chips(
        instance.cluster,
        [stage.chips for stage in replica.stages],
        replica.shape.tp,
        moe.top_k if moe else 0,
        instance.profile.for_chip(first_chip.chip.name),
        moved_in(instance, replica),
    )


def all_hand_offs_s(instance: Instance, replica: Replica, rates: GroupRates, rows: float) -> float:
    """Seconds that one pass of ``rows`` tokens per rank spends between stages, back to the first."""
    if replica.shape.pp == 1:
        return 0.0
    hops: list[float] = hand_off_s(instance.operations, rates, rows, replica.shape.tp).tolist()
    return sum(hops)


def _egress(
    instance: Instance,
    replica: Replica,
    linked: NDArray[np.bool_],
    rows: float,
    draft_rows: float,
    period_s: float,
) -> tuple[dict[int, float], dict[int, float]]:
    """Bytes per second leaving each domain, and its unit: dispatched and combined copies, sums of a rank, hand-offs.

    ``rows`` tokens per rank pass every layer in a period, ``draft_rows`` the MTP module's. Stages that are
    not ``linked`` dispatch nothing.
    """
    cluster, operations, shape = instance.cluster, instance.operations, replica.shape
    used = dict.fromkeys(cluster.chip(chip).domain for chip in replica.chips)
    if len(used) == 1:
        return {}, {}
    egress, far = dict.fromkeys(used, 0.0), dict.fromkeys(used, 0.0)
    unit_of = cluster.uplinks.unit_of
    moe = operations.moe
    moe_layers, reductions = np.zeros(len(replica.stages)), np.zeros(len(replica.stages))
    widths = np.array(shape.tp), np.array(shape.attention_dp)
    for kind, _, counts in stage_layers(instance, replica.stages):
        moe_layers += counts if kind.moe is not None else 0
        reductions += counts * reductions_of(kind, *widths)
    draft = operations.draft
    for index, stage in enumerate(replica.stages):
        homes = [cluster.chip(chip).domain for chip in stage.chips]
        drafted = draft_rows if draft is not None and index == shape.pp - 1 else 0.0
        summed = rows * float(reductions[index])
        if draft is not None:
            summed += drafted * sum(n * float(reductions_of(k, *widths)) for k, n in draft.layers)
        summed *= operations.hidden_size * operations.activation_bytes / period_s
        for rank in ranks_of(stage.chips, shape.tp) if linked[index] else ():
            for home in crossing(cluster, rank):
                rate = cluster.rate("all-reduce", rank)
                egress[home] += rate.out_bytes_per_byte * summed
                far[home] += rate.far_bytes_per_byte * summed
        if moe is not None and len(set(homes)) > 1 and linked[index]:
            moved = moved_in(instance, replica)
            rate = exchange_rate(cluster, stage.chips, moe.top_k, moved)
            element = moved.widening * dispatch_element_bytes(moe, operations)
            element += operations.activation_bytes
            if moved.gathers:
                element *= len(stage.chips)
            routed = rows * moe_layers[index]
            if draft is not None:
                routed += drafted * sum(n for kind, n in draft.layers if kind.moe)
            sourced = routed / shape.tp * moe.expert_input_dim * element
            for home in set(homes):
                egress[home] += rate.out_bytes_per_byte * sourced / period_s
                far[home] += rate.far_bytes_per_byte * sourced / period_s
        if shape.pp > 1:
            following = replica.stages[(index + 1) % shape.pp]
            sent = rows / shape.tp * operations.hidden_size * operations.activation_bytes
            for home, other in zip(homes, following.chips, strict=False):
                there = cluster.chip(other).domain
                egress[home] += sent / period_s if there != home else 0.0
                far[home] += sent / period_s if unit_of[there] != unit_of[home] else 0.0
    return egress, far
