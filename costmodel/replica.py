"""One replica priced: time by part, memory by kind, what it offers. Used by evaluation alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

import numpy as np
from numpy.typing import NDArray

from costmodel import memory
from costmodel.communication import GroupRates, rates_of_chips
from costmodel.instance import Instance
from costmodel.layout import Layout, Replica, Stage
from costmodel.moe_load import expert_shares
from costmodel.operations import LayerKind
from costmodel.pass_time import ExpertShares, Term, Tokens, dispatch_element_bytes, pass_time
from costmodel.profile import Efficiency
from costmodel.serving import PipelineTime, Schedule, Service, schedule, serve

#: kinds of bytes in a chip's HBM
MEMORY_KINDS = ("weights", "experts", "kv", "activations", "runtime")


@dataclass(frozen=True)
class StagePrice:
    """One stage: seconds by part per round, and per-chip bytes by kind ``[chips]``.

    A round is one token of every sequence (decode, mixed: with its share of prefill passes) or one
    pass of prompts (prefill). ``imbalance``: busiest chip's share of routed tokens times the chips,
    mean over MoE layers. ``terms``: what the pass of each name (``decode``, ``prefill``) is made of, on
    the slowest type of chip, whose name is ``slowest_chip``.
    """

    parts: dict[str, float]
    memory: dict[str, NDArray[np.float64]]
    imbalance: float
    terms: dict[str, tuple[Term, ...]] = field(default_factory=dict)
    slowest_chip: str = ""

    @property
    def used_bytes(self) -> NDArray[np.float64]:
        """Bytes of each chip's HBM in use, all kinds together ``[chips]``."""
        return np.asarray(np.sum(list(self.memory.values()), axis=0))


@dataclass(frozen=True)
class ReplicaPrice:
    """One replica: its stages, what it offers, and the bytes it sends between domains.

    ``egress_bytes_per_s``: leaving each domain at full load, by domain index (experts, hand-off).
    """

    stages: tuple[StagePrice, ...]
    service: Service
    egress_bytes_per_s: dict[int, float]


def replica_schedule(instance: Instance, replica: Replica) -> Schedule:
    """Passes of a replica; its busiest attention rank decides."""
    sequences = replica.rank_sequences()
    per_rank = ceil(max(sequences, default=0) / replica.shape.pp)
    plan = schedule(replica.role, instance.workload, instance.limits, float(per_rank))
    most = per_rank * replica.shape.pp * len(sequences)
    return plan.filled(sum(sequences) / most if most else 1.0)


def price_replica(instance: Instance, layout: Layout, replica: Replica) -> ReplicaPrice:
    """Price a structurally sound replica."""
    plan = replica_schedule(instance, replica)
    moe = instance.operations.moe
    first_chip = instance.cluster.chip(replica.stages[0].chips[0])
    rates = rates_of_chips(
        instance.cluster,
        [stage.chips for stage in replica.stages],
        replica.shape.tp,
        moe.top_k if moe else 0,
        instance.profile.for_chip(first_chip.chip.name),
    )
    times: dict[str, PipelineTime] = {}
    stage_parts: list[dict[str, float]] = [{} for _ in replica.stages]
    imbalances = [1.0] * len(replica.stages)
    terms: list[dict[str, tuple[Term, ...]]] = [{} for _ in replica.stages]
    slowest = [""] * len(replica.stages)
    sent_bytes = 0.0
    for name, tokens, weight in (
        ("decode", plan.decode, 1.0),
        ("prefill", plan.prefill, float(plan.events * plan.passes) if plan.decode else 1.0),
    ):
        if tokens is None:
            continue
        totals = []
        for index, stage in enumerate(replica.stages):
            total, parts, imbalances[index], slowest[index], made_of = _stage_time(
                instance, layout, replica, index, stage, tokens, rates[index]
            )
            terms[index][name] = made_of
            totals.append(total)
            for part, seconds in parts.items():
                stage_parts[index][part] = stage_parts[index].get(part, 0.0) + weight * seconds
        rows = float(np.asarray(tokens.decode) + np.asarray(tokens.prefill))
        hop_s = _hand_off_s(instance, replica, rates, rows)
        sums = np.array(totals)
        times[name] = PipelineTime(
            np.asarray(sums.sum()), np.asarray(sums.max()), np.asarray(hop_s)
        )
        sent_bytes += weight * rows
    pp = replica.shape.pp
    in_flight = replica.shape.batch / pp if replica.role == "prefill" else replica.shape.batch
    service = serve(
        instance.workload, plan, in_flight, pp, times.get("decode"), times.get("prefill")
    )
    round_s = float(service.tpot_s) / pp if plan.decode else float(times["prefill"].max_s)
    stages = tuple(
        StagePrice(
            stage_parts[index],
            _memory(instance, replica, index, stage, plan),
            imbalances[index],
            terms[index],
            slowest[index],
        )
        for index, stage in enumerate(replica.stages)
    )
    return ReplicaPrice(stages, service, _egress(instance, replica, sent_bytes, round_s))


def _hand_off_s(
    instance: Instance, replica: Replica, rates: list[GroupRates], rows: float
) -> float:
    """Seconds that one pass of ``rows`` tokens per rank spends between stages, back to the first."""
    if replica.shape.pp == 1:
        return 0.0
    operations = instance.operations
    sent = rows / replica.shape.tp * operations.hidden_size * operations.activation_bytes
    return sum(float(rate.send_latency_s + rate.send_s_per_byte * sent) for rate in rates)


def stage_layers(instance: Instance, stage: Stage) -> list[tuple[LayerKind, float, list[int]]]:
    """Kinds in a stage, how many layers of each, and their rows in arrays by MoE layer."""
    first, last = stage.layers
    result = []
    for kind in instance.operations.kinds:
        inside = [first <= layer <= last for layer in kind.layers]
        if any(inside):
            rows = [row for row, keep in zip(kind.moe_rows, inside, strict=False) if keep]
            result.append((kind, float(sum(inside)), rows))
    return result


def _stage_time(
    instance: Instance,
    layout: Layout,
    replica: Replica,
    index: int,
    stage: Stage,
    tokens: Tokens,
    rates: GroupRates,
) -> tuple[float, dict[str, float], float, str, tuple[Term, ...]]:
    """Seconds of one pass on a stage, by part, the imbalance of its experts, chip type and terms.

    With chips of several types the slowest type decides.
    """
    shape, operations = replica.shape, instance.operations
    rows = float(np.asarray(tokens.decode) + np.asarray(tokens.prefill))
    experts: list[ExpertShares | None] = []
    kinds: list[tuple[LayerKind, float]] = []
    imbalances: list[float] = []
    maps = layout.experts_of(stage)
    for kind, count, moe_rows in stage_layers(instance, stage):
        kinds.append((kind, count))
        if kind.moe is None:
            experts.append(None)
            continue
        slots = np.array([maps[operations.moe_layers[row]] for row in moe_rows], dtype=np.int64)
        shares = expert_shares(
            instance.expert_loads[moe_rows],
            slots,
            stage.slots(),
            kind.moe.top_k,
            rows * shape.attention_dp * tokens.fill,
        )
        experts.append(shares)
        imbalances += list(shares.load.max(axis=1) * len(stage.chips))
    types = {}
    for chip_id in stage.chips:
        chip = instance.cluster.chip(chip_id).chip
        types[chip.name] = chip
    found: list[tuple[float, dict[str, float], str, tuple[Term, ...]]] = []
    for name, chip in types.items():
        efficiency = instance.profile.for_chip(name)
        timed = pass_time(
            operations, kinds, shape.tp, shape.attention_dp, tokens, chip, efficiency, rates,
            experts, with_head=index == len(replica.stages) - 1, record=True,
        )  # fmt: skip
        parts = {part: float(seconds) for part, seconds in timed.parts.items()}
        step = efficiency.step_overhead_s / shape.pp
        parts["overhead"] += step
        total = float(timed.total_s(instance.profile.combination)) + step
        found.append((total, parts, name, tuple(timed.terms or ())))
    total, parts, name, terms = max(found, key=lambda row: row[0])
    return total, parts, float(np.mean(imbalances)) if imbalances else 1.0, name, terms


def _memory(
    instance: Instance,
    replica: Replica,
    index: int,
    stage: Stage,
    plan: Schedule,
) -> dict[str, NDArray[np.float64]]:
    """Bytes on each chip of a stage by kind."""
    layers = [(kind, count) for kind, count, _ in stage_layers(instance, stage)]
    shape, operations, workload = replica.shape, instance.operations, instance.workload
    first, last = index == 0, index == len(replica.stages) - 1
    ones = np.ones(len(stage.chips))
    dense = float(memory.dense_weight_bytes(layers, shape.tp)) + float(
        memory.edge_weight_bytes(operations, shape.tp, first=first, last=last)
    )
    context = workload.input_tokens if replica.role == "prefill" else workload.final_context
    per_sequence = float(memory.kv_bytes_per_sequence(operations, layers, shape.tp, context))
    sequences = np.repeat(np.array(replica.rank_sequences(), dtype=float), shape.tp)
    rows, sampled = float(plan.rows()), float(plan.sampled()) if last else 0.0
    activations = float(memory.activation_bytes(operations, shape.tp, rows, sampled))
    runtime = np.array(
        [_efficiency(instance, chip).runtime_bytes for chip in stage.chips], dtype=float
    )
    return {
        "weights": dense * ones,
        "experts": memory.expert_slot_bytes(layers) * np.array(stage.slots(), dtype=float),
        "kv": per_sequence * sequences,
        "activations": activations * ones,
        "runtime": runtime,
    }


def _efficiency(instance: Instance, chip_id: str) -> Efficiency:
    return instance.profile.for_chip(instance.cluster.chip(chip_id).chip.name)


def _egress(instance: Instance, replica: Replica, rows: float, period_s: float) -> dict[int, float]:
    """Bytes per second leaving each domain: dispatched and combined copies, stage hand-offs."""
    cluster, operations, shape = instance.cluster, instance.operations, replica.shape
    egress: dict[int, float] = {}
    moe = operations.moe
    for index, stage in enumerate(replica.stages):
        homes = [cluster.chip(chip).domain for chip in stage.chips]
        if moe is not None and len(set(homes)) > 1:
            rate = cluster.rate("dispatch", stage.chips, top_k=round(moe.top_k))
            layers = sum(count for kind, count, _ in stage_layers(instance, stage) if kind.moe)
            element = dispatch_element_bytes(moe, operations) + operations.activation_bytes
            sourced = rows / shape.tp * moe.expert_input_dim * element * layers
            for home in set(homes):
                egress[home] = egress.get(home, 0.0) + (
                    rate.out_bytes_per_byte * sourced / period_s
                )
        if shape.pp > 1:
            following = replica.stages[(index + 1) % shape.pp]
            sent = rows / shape.tp * operations.hidden_size * operations.activation_bytes
            for home, other in zip(homes, following.chips, strict=False):
                if cluster.chip(other).domain != home:
                    egress[home] = egress.get(home, 0.0) + sent / period_s
    return egress
