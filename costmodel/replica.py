"""One replica priced: time by part, memory by kind, what it offers. Used by evaluation alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from costmodel import memory
from costmodel.communication import GroupRates, rates_of_chips
from costmodel.instance import Instance
from costmodel.layout import Layout, Replica, Stage
from costmodel.moe_load import expert_shares
from costmodel.operations import LayerKind
from costmodel.pass_time import ExpertShares, PassTime, Tokens, dispatch_element_bytes, pass_time
from costmodel.profile import Efficiency
from costmodel.serving import (
    Service,
    decode_service,
    mixed_service,
    prefill_service,
    token_period_s,
)
from topology import Chip

#: kinds of bytes in a chip's HBM
MEMORY_KINDS = ("weights", "experts", "kv", "activations", "runtime")


@dataclass(frozen=True)
class StagePrice:
    """One stage: seconds of a pass by part and per-chip bytes by kind ``[chips]``."""

    parts: dict[str, float]
    total_s: float
    memory: dict[str, NDArray[np.float64]]
    #: busiest chip's share of routed tokens times the number of chips, mean over MoE layers
    imbalance: float


@dataclass(frozen=True)
class ReplicaPrice:
    """One replica: its stages, what it offers, and the bytes it sends between domains."""

    stages: tuple[StagePrice, ...]
    hop_s: float
    passes: float
    service: Service
    #: bytes per second that leave each domain at full load, by domain index (experts, hand-off)
    egress_bytes_per_s: dict[int, float]


def rank_tokens(instance: Instance, replica: Replica) -> tuple[Tokens, float]:
    """What the busiest attention rank processes in one pass, and passes per batch of prompts."""
    shape, workload = replica.shape, instance.workload
    per_rank = max(replica.rank_sequences(), default=0)
    micro = ceil(per_rank / shape.pp)
    if replica.role == "prefill":
        new = micro * workload.new_tokens
        passes = max(1, ceil(new / instance.limits.prefill_chunk_tokens))
        return (
            Tokens(
                prefill=new / passes,
                prefill_start=workload.cached_tokens,
                prefill_end=workload.input_tokens,
                prompts=micro / passes,
            ),
            float(passes),
        )
    beside = micro * workload.new_tokens / workload.decode_steps if replica.role == "mixed" else 0.0
    return (
        Tokens(
            decode=float(micro),
            context=workload.decode_context,
            prefill=beside,
            prefill_start=workload.cached_tokens,
            prefill_end=workload.input_tokens,
            prompts=micro / workload.decode_steps if replica.role == "mixed" else 0.0,
        ),
        1.0,
    )


def price_replica(instance: Instance, layout: Layout, replica: Replica) -> ReplicaPrice:
    """Price a structurally sound replica."""
    shape = replica.shape
    tokens, passes = rank_tokens(instance, replica)
    moe = instance.operations.moe
    chips_by_id = {chip: instance.cluster.chip(chip) for chip in replica.chips}
    efficiency = instance.profile.for_chip(next(iter(chips_by_id.values())).chip.name)
    rates = rates_of_chips(
        instance.cluster,
        [stage.chips for stage in replica.stages],
        shape.tp,
        moe.top_k if moe else 0,
        efficiency,
    )
    prices = []
    for index, stage in enumerate(replica.stages):
        kinds = {chips_by_id[chip].chip.name: chips_by_id[chip].chip for chip in stage.chips}
        prices.append(
            _price_stage(instance, layout, replica, index, stage, tokens, rates[index], kinds)
        )
    sums = np.array([price.total_s for price in prices])
    rows = float(np.asarray(tokens.decode) + np.asarray(tokens.prefill))
    hop_s = 0.0
    if shape.pp > 1:
        sent = (
            rows / shape.tp * instance.operations.hidden_size * instance.operations.activation_bytes
        )
        hop_s = sum(float(r.send_latency_s + r.send_s_per_byte * sent) for r in rates)
    total, longest = np.asarray(sums.sum()), np.asarray(sums.max())
    workload = instance.workload
    batch = float(shape.batch)
    if replica.role == "prefill":
        service = prefill_service(batch / shape.pp, passes, total, longest, hop_s)
        period = float(longest)
    else:
        period_array = token_period_s(total, longest, hop_s, shape.pp)
        period = float(period_array) / shape.pp
        if replica.role == "decode":
            service = decode_service(batch, period_array, workload)
        else:
            service = mixed_service(
                batch, np.asarray(tokens.prefill) * shape.pp, period_array, workload
            )
    return ReplicaPrice(
        stages=tuple(prices),
        hop_s=hop_s,
        passes=passes,
        service=service,
        egress_bytes_per_s=_egress(instance, replica, rows, period),
    )


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


def _price_stage(
    instance: Instance,
    layout: Layout,
    replica: Replica,
    index: int,
    stage: Stage,
    tokens: Tokens,
    rates: GroupRates,
    chips: dict[str, Chip],
) -> StagePrice:
    shape, operations = replica.shape, instance.operations
    found = stage_layers(instance, stage)
    layers = [(kind, count) for kind, count, _ in found]
    with_head = index == len(replica.stages) - 1
    rank_rows = float(np.asarray(tokens.decode) + np.asarray(tokens.prefill))
    experts: list[ExpertShares | None] = []
    kinds: list[tuple[LayerKind, float]] = []
    imbalances: list[float] = []
    maps = layout.experts_of(stage)
    for kind, count, rows in found:
        if kind.moe is None:
            experts.append(None)
            kinds.append((kind, count))
            continue
        slots = np.array([maps[operations.moe_layers[row]] for row in rows], dtype=np.int64)
        shares = expert_shares(
            instance.expert_loads[rows],
            slots,
            stage.slots(),
            kind.moe.top_k,
            rank_rows * shape.attention_dp,
        )
        experts.append(shares)
        kinds.append((kind, count))
        imbalances += list(shares.load.max(axis=1) * len(stage.chips))
    slowest: tuple[float, PassTime] | None = None
    for name, chip in chips.items():
        efficiency = instance.profile.for_chip(name)
        timed = pass_time(
            operations, kinds, shape.tp, shape.attention_dp, tokens, chip, efficiency, rates,
            experts, with_head=with_head,
        )  # fmt: skip
        total = float(timed.total_s(instance.profile.combination)) + (
            efficiency.step_overhead_s / shape.pp
        )
        if slowest is None or total > slowest[0]:
            slowest = (total, timed)
    assert slowest is not None
    total, timed = slowest
    return StagePrice(
        parts={part: float(seconds) for part, seconds in timed.parts.items()},
        total_s=total,
        memory=_memory(instance, replica, index, stage, layers, tokens),
        imbalance=float(np.mean(imbalances)) if imbalances else 1.0,
    )


def _memory(
    instance: Instance,
    replica: Replica,
    index: int,
    stage: Stage,
    layers: list[tuple[LayerKind, float]],
    tokens: Tokens,
) -> dict[str, NDArray[np.float64]]:
    shape, operations, workload = replica.shape, instance.operations, instance.workload
    first, last = index == 0, index == len(replica.stages) - 1
    ones = np.ones(len(stage.chips))
    dense = float(memory.dense_weight_bytes(layers, shape.tp)) + float(
        memory.edge_weight_bytes(operations, shape.tp, first=first, last=last)
    )
    context = workload.input_tokens if replica.role == "prefill" else workload.final_context
    per_sequence = float(memory.kv_bytes_per_sequence(operations, layers, shape.tp, context))
    sequences = np.repeat(np.array(replica.rank_sequences(), dtype=float), shape.tp)
    rows = float(np.asarray(tokens.decode) + np.asarray(tokens.prefill))
    sampled = float(np.asarray(tokens.decode) + np.asarray(tokens.prompts))
    activations = float(
        memory.activation_bytes(operations, shape.tp, rows, sampled if last else 0.0)
    )
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
            rate = cluster.rate("dispatch", stage.chips, top_k=moe.top_k)
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
