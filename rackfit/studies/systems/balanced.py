"""Decode on chips that share routed tokens evenly: one pass in closed form, for wide expert parallelism.

Prices a group that spans domains with or without merging copies, which layouts cannot choose. Solves
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from costmodel.experts.moe_load import touch_probability
from costmodel.passes.communication import GroupRates, achieved
from costmodel.passes.group import ChipGroup
from costmodel.passes.pass_sums import PassTime
from costmodel.passes.pass_time import pass_time
from costmodel.passes.tokens import ExpertShares, Tokens
from costmodel.question.instance import Instance
from costmodel.replica import memory
from topology import Rate
from topology.errors import NoFeasibleLayout


@dataclass(frozen=True)
class BalancedDecode:
    """One decode pass of ``sequences`` on each of ``chips``: seconds by part and in all."""

    chips: int
    sequences: int
    parts: dict[str, float]
    pass_s: float

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of the whole group."""
        return self.chips * self.sequences / self.pass_s

    @property
    def exchange_s(self) -> float:
        """Seconds of a pass in dispatch and combine."""
        return self.parts.get("dispatch", 0.0) + self.parts.get("combine", 0.0)


def largest_balanced_decode(instance: Instance, chips: int, exchange: Rate) -> BalancedDecode:
    """The most sequences per chip that HBM, the TPOT target and the limits allow, on ``chips`` chips.

    ``exchange`` is the dispatch rate of the group. Raises ``NoFeasibleLayout`` where not one fits.
    """
    room = _sequences_that_fit(instance, chips)
    target = instance.slo.tpot or float("inf")
    most = min(room, instance.limits.max_sequences_per_rank)
    best = _last(most, lambda n: balanced_decode(instance, chips, n, exchange).pass_s <= target)
    if best == 0:
        why = "HBM" if most == 0 else f"a TPOT of {target * 1e3:g} ms"
        message = f"{why} allows not one sequence per chip on {chips} chips with experts in balance"
        raise NoFeasibleLayout(message)
    return balanced_decode(instance, chips, best, exchange)


def balanced_decode(
    instance: Instance, chips: int, sequences: int, exchange: Rate
) -> BalancedDecode:
    """A pass of ``sequences`` per chip, each chip an attention rank, experts spread evenly."""
    operations = instance.operations
    chip = instance.cluster.usable[0].chip
    efficiency = instance.profile.for_chip(chip.name)
    nothing = np.zeros(())
    latency_s, s_per_byte = achieved(lambda: exchange, efficiency.all_to_all)
    rates = GroupRates(
        nothing, nothing, np.asarray(latency_s), np.asarray(s_per_byte), nothing, nothing
    )
    kinds = [(kind, float(len(kind.layers))) for kind in operations.kinds]
    shares: list[ExpertShares | None] = []
    for kind, _ in kinds:
        if kind.moe is None:
            shares.append(None)
            continue
        experts = kind.moe.num_experts
        slots = max(1.0, experts / chips)
        hit = touch_probability(
            np.asarray(1.0 / experts), kind.moe.top_k, chips * sequences, slots * chips / experts
        )
        even, touched = np.full((1, 1), 1.0 / chips), slots * np.asarray(hit).reshape(1, 1)
        shares.append(ExpertShares(load=even, touched=touched))
    tokens = Tokens(decode=float(sequences), context=instance.workload.decode_context)
    timed: PassTime = pass_time(
        ChipGroup.of(operations, 1, chips, chip, efficiency, rates), kinds, tokens, shares
    )
    total = float(timed.total_s(instance.profile.combination)) + efficiency.step_overhead_s
    parts = {part: float(seconds) for part, seconds in timed.parts.items()}
    return BalancedDecode(chips, sequences, parts, total)


def _sequences_that_fit(instance: Instance, chips: int) -> int:
    operations, workload = instance.operations, instance.workload
    chip = instance.cluster.usable[0].chip
    kinds = [(kind, float(len(kind.layers))) for kind in operations.kinds]
    experts = operations.moe.num_experts if operations.moe is not None else 0
    held = (
        float(memory.dense_weight_bytes(kinds, 1.0))
        + float(memory.edge_weight_bytes(operations, 1.0, first=True, last=True))
        + memory.expert_slot_bytes(kinds) * (max(1.0, experts / chips) if experts else 0.0)
        + instance.profile.for_chip(chip.name).runtime_bytes
    )
    one = float(memory.kv_bytes_per_sequence(operations, kinds, 1.0, workload.final_context))
    each = one + float(memory.activation_bytes(operations, 1.0, 1.0, 1.0))
    return max(0, int((instance.usable_hbm_bytes(chip) - held) // each)) if each else 65_536


def _last(most: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to ``most`` that holds, for what stops holding once; 0 if none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
