"""A replica whose experts lie apart, priced: seconds by part, bytes by kind, what it offers, what it sends."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.apart.kinds import half_kinds
from costmodel.apart.times import ApartTimes, Exchange, Sides, apart_times
from costmodel.layout.layout import Layout, Replica, Stage
from costmodel.models.spec import MoE
from costmodel.passes.communication import NEVER_S, stacked_rates_of_chips
from costmodel.passes.group import achieved_by
from costmodel.passes.routed import dispatch_element_bytes, excess_tokens
from costmodel.passes.tokens import ExpertShares, Tokens
from costmodel.question.instance import Instance
from costmodel.replica.replica import ReplicaPrice, StagePrice
from costmodel.replica.serving import PipelineTime, Schedule, schedule, serve
from costmodel.replica.stage_experts import stage_shares
from costmodel.replica.stage_times import stage_layers
from topology import Chip
from topology.collectives.between import Between, between
from topology.errors import NoRoute

Array = NDArray[np.float64]


def apart_schedule(instance: Instance, replica: Replica) -> Schedule:
    """The decode pass of a replica in its fullest microbatch; its busiest attention rank decides."""
    assert replica.apart is not None
    in_pass = [-(-count // replica.apart.microbatches) for count in replica.rank_sequences()]
    most = max(in_pass, default=0)
    plan = schedule("decode", instance.workload, instance.limits, float(most))
    return plan.filled(sum(in_pass) / (most * len(in_pass)))


def price_apart(instance: Instance, layout: Layout, replica: Replica) -> ReplicaPrice:
    """Price a structurally sound replica whose experts lie apart."""
    assert replica.apart is not None
    plan = apart_schedule(instance, replica)
    assert plan.decode is not None
    experts, batches = replica.apart.experts, replica.apart.microbatches
    try:
        there = between(instance.cluster, replica.kv_chips, experts.chips, _moe(instance).top_k)
    except NoRoute:
        there = Between(NEVER_S, 0.0, 0.0, 0.0, {}, {}, {}, {})
    shares = _shares(instance, layout, experts, plan.decode, replica.shape.attention_dp)
    times = apart_times(
        sides_of(instance, replica, there), half_kinds(instance.operations), plan.decode, shares
    )
    period = times.period_s[0]
    line = PipelineTime(period, np.zeros(()), np.zeros(()))
    service = serve(instance.workload, plan, replica.shape.batch, 1, line, None)
    noise = instance.profile.for_chip(_chip(instance, experts).name).routing_noise
    skew = _imbalance(instance, shares, plan.decode, replica, noise)
    memory = apart_memory(instance, replica, plan.decode)
    stages = tuple(
        StagePrice(parts, held, own)
        for parts, held, own in zip(_parts(times, batches), memory, (1.0, skew), strict=True)
    )
    egress = _egress(instance, there, plan.decode, replica, float(period))
    return ReplicaPrice(stages, service, *egress)


def sides_of(instance: Instance, replica: Replica, there: Between) -> Sides:
    """Both groups of a replica as a pass meets them."""
    assert replica.apart is not None
    attention, experts, shape = replica.stages[0], replica.apart.experts, replica.shape
    attends, multiplies = (
        achieved_by(chip, instance.profile.for_chip(chip.name))
        for chip in (_chip(instance, attention), _chip(instance, experts))
    )
    reduce = stacked_rates_of_chips(
        instance.cluster, [attention.chips], shape.tp, 0.0, attends.efficiency
    )
    widths = (shape.tp, shape.attention_dp, len(experts.chips), replica.apart.microbatches)
    tp, ranks, chips, batches = (np.array([float(width)]) for width in widths)
    numbers = there.latency_s, there.out_s_per_byte, there.through_s_per_byte, there.into_s_per_byte
    exchange = Exchange(*(np.array([number]) for number in numbers))
    return Sides(
        instance.operations, instance.profile.combination, attends, multiplies, tp, ranks, chips,
        batches, reduce, exchange,
    )  # fmt: skip


def _moe(instance: Instance) -> MoE:
    moe = instance.operations.moe
    assert moe is not None
    return moe


def _chip(instance: Instance, stage: Stage) -> Chip:
    return instance.cluster.chip(stage.chips[0]).chip


def _shares(
    instance: Instance, layout: Layout, experts: Stage, tokens: Tokens, ranks: int
) -> list[ExpertShares | None]:
    """Load and touched experts of each chip of experts, kind by kind ``[1, layers, chips]``."""
    routed = np.array([float(tokens.rows) * ranks * float(tokens.fill)])
    found: list[ExpertShares | None] = []
    for kind, starts, counts in stage_layers(instance, [experts]):
        if kind.moe is None:
            found.append(None)
            continue
        own = stage_shares(instance, layout, [experts], kind, starts, counts, routed)
        found.append(ExpertShares(own.load[None], own.touched[None]))
    return found


def _imbalance(
    instance: Instance,
    shares: list[ExpertShares | None],
    tokens: Tokens,
    replica: Replica,
    noise: float,
) -> float:
    """Busiest chip's share of routed tokens times the chips of experts, mean over MoE layers."""
    chips = float(replica.shape.ep)
    met = float(tokens.rows) * replica.shape.attention_dp * float(tokens.fill)
    met *= _moe(instance).top_k
    beyond = float(excess_tokens(np.array(met), np.array(chips), noise)) / max(met, 1e-300)
    loads = [own.busiest_load.ravel() + beyond for own in shares if own is not None]
    return float(np.concatenate(loads).mean()) * chips


def _parts(times: ApartTimes, microbatches: int) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds by part that each group is busy while every microbatch passes once; of experts with the exchange."""
    found: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for kind in times.kinds:
        layers = kind.repeats * kind.dispatch.shape[-1]
        for group, factor, own in zip(found, (layers, kind.repeats), kind.parts, strict=True):
            for part, seconds in own.items():
                spent = float(np.sum(seconds)) * factor * microbatches
                group[part] = group.get(part, 0.0) + spent
    for part, seconds in times.head.parts.items():
        found[0][part] = found[0].get(part, 0.0) + float(np.sum(seconds)) * microbatches
    return found


def apart_memory(
    instance: Instance, replica: Replica, tokens: Tokens
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Bytes on each chip of attention and of experts by kind ``[chips]``.

    Activations of every microbatch are alive at once; a chip of experts holds the copies that come and go.
    """
    assert replica.apart is not None
    shape, operations = replica.shape, instance.operations
    counts = operations.layers_within(0, operations.num_layers - 1)
    width = instance.width_bytes(shape.tp)
    rows = float(tokens.rows) * replica.apart.microbatches
    ones, runs = np.ones(shape.chips_per_stage), instance.profile.for_chip
    sequences = np.repeat(np.array(replica.rank_sequences(), dtype=float), shape.tp)
    attention = {
        "weights": ones * width.weights(counts, shape.chips_per_stage, first=True, last=True),
        "experts": 0.0 * ones,
        "kv": width.cached(counts, instance.final_context, last=True) * sequences,
        "activations": ones * width.active(rows, float(tokens.sampled)),
        "runtime": ones * runs(_chip(instance, replica.stages[0]).name).runtime_bytes,
    }
    stage = replica.apart.experts
    slots = np.array(stage.slots(), dtype=float)
    each = np.ones(len(stage.chips))
    experts = {
        "weights": 0.0 * each,
        "experts": width.slot(counts) * slots,
        "kv": 0.0 * each,
        "activations": each
        * expert_copies_bytes(instance, rows * shape.attention_dp, float(len(each))),
        "runtime": each * runs(_chip(instance, stage).name).runtime_bytes,
    }
    return attention, experts


def expert_copies_bytes(instance: Instance, rows: float | Array, chips: float | Array) -> Array:
    """Bytes on a chip of experts of the copies of ``rows`` tokens, evenly over ``chips``: as they come and go."""
    moe = _moe(instance)
    element = (
        dispatch_element_bytes(moe, instance.operations) + instance.operations.activation_bytes
    )
    copies = np.minimum(round(moe.top_k), np.asarray(chips, dtype=float))
    return np.asarray(np.asarray(rows) * copies / chips * moe.expert_input_dim * element)


def _egress(
    instance: Instance, there: Between, tokens: Tokens, replica: Replica, period_s: float
) -> tuple[dict[int, float], dict[int, float]]:
    """Bytes per second out of each domain, or into it where those are more: vectors to experts, and sums back."""
    assert replica.apart is not None
    homes = list(dict.fromkeys(instance.cluster.chip(chip).domain for chip in replica.chips))
    if len(homes) == 1:
        return {}, {}
    moe, operations = _moe(instance), instance.operations
    element = max(dispatch_element_bytes(moe, operations), operations.activation_bytes)
    vectors = float(tokens.rows) * float(tokens.fill) * replica.shape.attention_dp
    moved = vectors * moe.expert_input_dim * element * replica.apart.microbatches
    rate = moved * len(operations.moe_layers) / period_s
    crossing = there.crossing | there.arriving
    far = there.far_crossing | there.far_arriving
    return (
        {home: rate * crossing.get(home, 0.0) for home in homes},
        {home: rate * far.get(home, 0.0) for home in homes},
    )
