"""Stages of many replicas priced at once: one array element per stage.

Stages differ in their layers, experts, links, widths and tokens; what a layer of a kind costs they share.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.communication import GroupRates
from costmodel.instance import Instance
from costmodel.layout import Layout, Replica, Stage
from costmodel.moe_load import placed_shares, reached
from costmodel.operations import LayerKind
from costmodel.overlap import both_halves, half
from costmodel.pass_sums import Term
from costmodel.pass_time import pass_time
from costmodel.tokens import ExpertShares, Tokens

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

#: numbers in an array ``[MoE layers, chips]`` up to which passes are priced together
_MOST_TOGETHER = 1 << 20
#: numbers in an array ``[layers, slots]`` up to which stages are looked at together
_IN_CACHE = 1 << 13


@dataclass(frozen=True)
class StagePass:
    """One pass of one replica; ``rates`` has one element per stage."""

    replica: Replica
    tokens: Tokens
    rates: GroupRates


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
    instance: Instance, stages: Sequence[Stage]
) -> list[tuple[LayerKind, Ints, Ints]]:
    """Kinds of layers, with the first place in ``kind.layers`` and the count of each stage."""
    result = []
    for kind in instance.operations.kinds:
        starts = [bisect_left(kind.layers, stage.layers[0]) for stage in stages]
        ends = [bisect_right(kind.layers, stage.layers[1]) for stage in stages]
        first = np.array(starts, dtype=np.int64)
        result.append((kind, first, np.array(ends, dtype=np.int64) - first))
    return result


def stage_times(
    instance: Instance, layout: Layout, passes: Sequence[StagePass], *, record: bool = False
) -> list[StageTimes]:
    """Times of each pass on every stage of its replica; ``record`` keeps the terms.

    On chips of several types the slowest type decides.
    """
    found: dict[int, StageTimes] = {}
    for halved, types, members in _together(instance, passes):
        some = [passes[index] for index in members]
        if halved:
            some = [replace(one, tokens=half(one.tokens)) for one in some]
        timed = _timed(instance, layout, some, types, halved=halved, record=record)
        first = 0
        for index in members:
            last = first + len(passes[index].replica.stages)
            found[index] = timed if len(members) == 1 else _part(timed, slice(first, last))
            first = last
    return [found[index] for index in range(len(passes))]


def _together(
    instance: Instance, passes: Sequence[StagePass]
) -> Iterator[tuple[bool, tuple[str, ...], list[int]]]:
    """Passes that are priced at once: alike in overlap and types of chip, and not too many."""
    layers = len(instance.operations.moe_layers)
    alike: dict[tuple[bool, tuple[str, ...]], list[int]] = {}
    for index, one in enumerate(passes):
        # one rank exchanges nothing that a second half could hide
        halved = instance.scenario.two_batch_overlap and one.replica.shape.attention_dp > 1
        alike.setdefault((halved, _types(instance, one.replica)), []).append(index)
    for (halved, types), members in alike.items():
        start, widest = 0, 0
        for place, index in enumerate(members):
            widest = max(widest, passes[index].replica.shape.chips_per_stage)
            if place > start and (place - start + 1) * layers * widest > _MOST_TOGETHER:
                yield halved, types, members[start:place]
                start, widest = place, passes[index].replica.shape.chips_per_stage
        yield halved, types, members[start:]


def _part(timed: StageTimes, stages: slice) -> StageTimes:
    """The times of some of the stages that were priced at once."""
    every = np.zeros(len(timed.total_s))
    return StageTimes(
        timed.total_s[stages],
        {part: seconds[stages] for part, seconds in timed.parts.items()},
        timed.imbalance[stages],
        timed.slowest_chip[stages],
        {
            name: [
                replace(
                    term,
                    compute_s=(term.compute_s + every)[stages],
                    memory_s=(term.memory_s + every)[stages],
                )
                for term in terms
            ]
            for name, terms in timed.terms.items()
        },
    )


def _timed(
    instance: Instance,
    layout: Layout,
    passes: Sequence[StagePass],
    types: Sequence[str],
    *,
    halved: bool,
    record: bool,
) -> StageTimes:
    """Times of all stages of some passes on the same types of chip, replica after replica."""
    operations = instance.operations
    stages = [stage for one in passes for stage in one.replica.stages]
    count = len(stages)
    depth = [len(one.replica.stages) for one in passes]
    tokens = Tokens.side_by_side([one.tokens for one in passes], depth)
    shapes = [one.replica.shape for one in passes]
    tp = np.repeat(np.array([float(shape.tp) for shape in shapes]), depth)
    ranks = np.repeat(np.array([float(shape.attention_dp) for shape in shapes]), depth)
    pp = np.repeat(np.array([float(shape.pp) for shape in shapes]), depth)
    rates = GroupRates.side_by_side([one.rates for one in passes])
    kinds: list[tuple[LayerKind, Array]] = []
    experts: list[ExpertShares | None] = []
    skew, moe_layers = np.zeros(count), np.zeros(count)
    routed = tokens.rows * ranks * tokens.fill
    for kind, starts, counts in stage_layers(instance, stages):
        kinds.append((kind, counts.astype(float)))
        if kind.moe is None:
            experts.append(None)
            continue
        shares = _shares(instance, layout, stages, kind, starts, counts, routed)
        experts.append(shares)
        skew += shares.over_layers(shares.load.max(axis=-1)) * (tp * ranks)
        moe_layers += counts
    is_last = np.zeros(count)
    is_last[np.cumsum(depth) - 1] = 1.0
    total = np.full(count, -np.inf)
    parts: dict[str, Array] = {}
    slowest, terms = [""] * count, {}
    for name in types:
        here = np.array([name in _types_of(instance, stage) for stage in stages])
        chip = next(
            placed.chip
            for placed in map(instance.cluster.chip, passes[0].replica.chips)
            if placed.chip.name == name
        )
        efficiency = instance.profile.for_chip(name)
        timed = pass_time(
            operations, kinds, tp, ranks, tokens, chip, efficiency, rates, experts,
            with_head=is_last, record=record,
        )  # fmt: skip
        seconds, own = timed.total_s(instance.profile.combination), timed.parts
        if halved:
            seconds, own = both_halves(seconds, own)
        step = efficiency.step_overhead_s / pp
        own = own | {"overhead": own["overhead"] + step}
        slower = here & (seconds + step > total)
        total = np.where(slower, seconds + step, total)
        slowest = [name if wins else other for wins, other in zip(slower, slowest, strict=True)]
        terms[name] = timed.terms or []
        for part, spent in own.items():
            parts[part] = np.where(slower, spent, parts.get(part, 0.0))
    imbalance = np.where(moe_layers > 0, skew / np.maximum(moe_layers, 1), 1.0)
    return StageTimes(total, parts, imbalance, slowest, terms)


def _types(instance: Instance, replica: Replica) -> tuple[str, ...]:
    """Types of the chips of a replica, by name, in order of first use."""
    return tuple(dict.fromkeys(t for stage in replica.stages for t in _types_of(instance, stage)))


def _types_of(instance: Instance, stage: Stage) -> dict[str, None]:
    return dict.fromkeys([instance.cluster.chip(chip).chip.name for chip in stage.chips])


def _shares(
    instance: Instance,
    layout: Layout,
    stages: Sequence[Stage],
    kind: LayerKind,
    starts: Ints,
    counts: Ints,
    tokens: Array,
) -> ExpertShares:
    """Load of the chips in every layer of a kind, stage after stage.

    ``tokens [stages]`` in the pass over all ranks. Stages with the same slots on their chips are
    computed together; where stages differ in width, the narrower ones have chips without load.
    """
    moe = kind.moe
    assert moe is not None
    alike: dict[tuple[int, ...], list[int]] = {}
    for index, stage in enumerate(stages):
        if counts[index]:
            alike.setdefault(stage.slots(), []).append(index)
    # what an expert without copies sees of so many tokens is the same in every pass
    missed = instance.log_missed(kind)
    every = {number: reached(missed, number) for number in set(tokens[counts > 0].tolist())}
    rows_of = np.array(kind.moe_rows)
    chips = max((len(slots) for slots in alike), default=1)
    load, touched = np.zeros((counts.sum(), chips)), np.zeros((counts.sum(), chips))
    place = np.cumsum(counts) - counts
    for slots, members in alike.items():
        for indices in _few(members, counts, sum(slots)):
            inside = [slice(starts[index], starts[index] + counts[index]) for index in indices]
            placed = [
                _experts(layout, stages[index], kind.layers[part])
                for index, part in zip(indices, inside, strict=True)
            ]
            alone = [every[tokens[index]][part] for index, part in zip(indices, inside, strict=True)]
            shares = placed_shares(
                instance.expert_loads[np.concatenate([rows_of[part] for part in inside])],
                alone[0] if len(alone) == 1 else np.concatenate(alone),
                placed[0] if len(placed) == 1 else np.concatenate(placed),
                slots,
                moe.top_k,
                np.repeat(tokens[indices], counts[indices]),
            )
            at = np.concatenate([np.arange(place[i], place[i] + counts[i]) for i in indices])
            load[at, : len(slots)] = shares.load
            touched[at, : len(slots)] = shares.touched
    return ExpertShares(load, touched, stage_layers=counts)


def _few(stages: Sequence[int], counts: Ints, slots: int) -> Iterator[list[int]]:
    """Stages in groups whose arrays ``[layers, slots]`` stay small enough for a core's cache."""
    group: list[int] = []
    size = 0
    for stage in stages:
        size += int(counts[stage]) * slots
        if group and size > _IN_CACHE:
            yield group
            group, size = [], int(counts[stage]) * slots
        group.append(stage)
    yield group


def _experts(layout: Layout, stage: Stage, layers: tuple[int, ...]) -> Ints:
    """Expert of each slot in some layers of a stage ``[layers, slots]``."""
    table = layout.slot_tables.get(stage.expert_map or "")
    if table is not None:
        return table.rows(layers)
    maps = layout.experts_of(stage)
    return np.array([maps[layer] for layer in layers], dtype=np.int64)
