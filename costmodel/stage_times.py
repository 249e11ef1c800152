"""All stages of one replica priced at once: one array element per stage.

Stages differ in their layers, experts and links; what a layer of a kind costs they share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.communication import GroupRates
from costmodel.instance import Instance
from costmodel.layout import Layout, Replica, Stage
from costmodel.moe_load import expert_shares
from costmodel.operations import LayerKind
from costmodel.overlap import both_halves, half
from costmodel.pass_sums import Term
from costmodel.pass_time import pass_time
from costmodel.tokens import ExpertShares, Tokens

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StageTimes:
    """Seconds of one pass on each stage, in all and by part ``[stages]``.

    ``imbalance [stages]``: busiest chip's share of routed tokens times the chips, mean over the
    stage's MoE layers (1 without any). ``slowest_chip [stages]``: the type of chip that decides;
    ``terms``: what a pass is made of by type of chip, where recorded.
    """

    total_s: Array
    parts: dict[str, Array]
    imbalance: Array
    slowest_chip: list[str]
    terms: dict[str, list[Term]]

    def terms_of(self, stage: int) -> list[Term]:
        """Terms of one stage, on its slowest type of chip."""
        every = np.zeros(len(self.total_s))
        return [
            replace(
                term,
                compute_s=np.asarray((term.compute_s + every)[stage]),
                memory_s=np.asarray((term.memory_s + every)[stage]),
            )
            for term in self.terms[self.slowest_chip[stage]]
        ]


def stage_layers(
    instance: Instance, replica: Replica
) -> list[tuple[LayerKind, NDArray[np.int64], NDArray[np.int64]]]:
    """Kinds in a replica, with the first place in ``kind.layers`` and the count of each stage."""
    first = [stage.layers[0] for stage in replica.stages]
    last = [stage.layers[1] for stage in replica.stages]
    result = []
    for kind in instance.operations.kinds:
        starts = np.searchsorted(kind.layers, first, side="left")
        counts = np.searchsorted(kind.layers, last, side="right") - starts
        result.append((kind, starts.astype(np.int64), counts.astype(np.int64)))
    return result


def stage_times(
    instance: Instance,
    layout: Layout,
    replica: Replica,
    tokens: Tokens,
    rates: GroupRates,
    *,
    record: bool = False,
) -> StageTimes:
    """Time of one pass on every stage; with chips of several types the slowest type decides.

    ``rates`` has one element per stage; ``record`` keeps the terms.
    """
    shape, operations = replica.shape, instance.operations
    # one rank exchanges nothing that a second half could hide
    halved = instance.scenario.two_batch_overlap and shape.attention_dp > 1
    if halved:
        tokens = half(tokens)
    rows = float(tokens.rows)
    pp = len(replica.stages)
    kinds: list[tuple[LayerKind, Array]] = []
    experts: list[ExpertShares | None] = []
    skew, moe_layers = np.zeros(pp), np.zeros(pp)
    for kind, starts, counts in stage_layers(instance, replica):
        kinds.append((kind, counts.astype(float)))
        if kind.moe is None:
            experts.append(None)
            continue
        routed = rows * shape.attention_dp * tokens.fill
        shares = _shares(instance, layout, replica, kind, starts, counts, routed)
        experts.append(shares)
        skew += shares.over_layers(shares.load.max(axis=-1)) * shape.chips_per_stage
        moe_layers += counts
    is_last = np.arange(pp) == pp - 1
    total = np.full(pp, -np.inf)
    parts: dict[str, Array] = {}
    slowest, terms = [""] * pp, {}
    for name in dict.fromkeys(_chip(instance, chip) for chip in replica.chips):
        here = np.array(
            [any(_chip(instance, chip) == name for chip in stage.chips) for stage in replica.stages]
        )
        chip = next(
            placed.chip
            for placed in map(instance.cluster.chip, replica.chips)
            if placed.chip.name == name
        )
        efficiency = instance.profile.for_chip(name)
        timed = pass_time(
            operations, kinds, shape.tp, shape.attention_dp, tokens, chip, efficiency, rates,
            experts, with_head=is_last, record=record,
        )  # fmt: skip
        seconds, own = timed.total_s(instance.profile.combination), timed.parts
        if halved:
            seconds, own = both_halves(seconds, own)
        step = efficiency.step_overhead_s / shape.pp
        own = own | {"overhead": own["overhead"] + step}
        slower = here & (seconds + step > total)
        total = np.where(slower, seconds + step, total)
        slowest = [name if wins else other for wins, other in zip(slower, slowest, strict=True)]
        terms[name] = timed.terms or []
        for part, spent in own.items():
            parts[part] = np.where(slower, spent, parts.get(part, np.zeros(pp)))
    imbalance = np.where(moe_layers > 0, skew / np.maximum(moe_layers, 1), 1.0)
    return StageTimes(total, parts, imbalance, slowest, terms)


def _chip(instance: Instance, chip_id: str) -> str:
    return instance.cluster.chip(chip_id).chip.name


def _shares(
    instance: Instance,
    layout: Layout,
    replica: Replica,
    kind: LayerKind,
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
    tokens: float,
) -> ExpertShares:
    """Load of the chips in every layer of a kind, stage after stage.

    Stages with the same slots on their chips are computed together.
    """
    assert kind.moe is not None
    chips = replica.shape.chips_per_stage
    load, touched = np.zeros((counts.sum(), chips)), np.zeros((counts.sum(), chips))
    place = np.cumsum(counts) - counts
    alike: dict[tuple[int, ...], list[int]] = {}
    for index, stage in enumerate(replica.stages):
        if counts[index]:
            alike.setdefault(stage.slots(), []).append(index)
    for slots, indices in alike.items():
        inside = [slice(starts[index], starts[index] + counts[index]) for index in indices]
        rows = np.concatenate([kind.moe_rows[part] for part in inside])
        placed = [
            _experts(layout, replica.stages[index], kind.layers[part])
            for index, part in zip(indices, inside, strict=True)
        ]
        found = expert_shares(
            instance.expert_loads[rows],
            placed[0] if len(placed) == 1 else np.concatenate(placed),
            slots,
            kind.moe.top_k,
            tokens,
        )
        if len(alike) == 1:  # layers are in order already
            return replace(found, stage_layers=counts)
        at = np.concatenate([np.arange(place[i], place[i] + counts[i]) for i in indices])
        load[at], touched[at] = found.load, found.touched
    return ExpertShares(load, touched, stage_layers=counts)


def _experts(layout: Layout, stage: Stage, layers: tuple[int, ...]) -> NDArray[np.int64]:
    """Expert of each slot in some layers of a stage ``[layers, slots]``."""
    table = layout.slot_tables.get(stage.expert_map or "")
    if table is not None:
        return table.experts[[table.row_of[layer] for layer in layers]]
    maps = layout.experts_of(stage)
    return np.array([maps[layer] for layer in layers], dtype=np.int64)
