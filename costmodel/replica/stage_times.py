"""Stages of many replicas priced at once: one array element per stage.

Stages differ in their layers, experts, links, widths and tokens; what a layer of a kind costs they share.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import Layout, Replica, Stage
from costmodel.passes.communication import GroupRates
from costmodel.passes.group import ChipGroup
from costmodel.passes.operations import LayerKind
from costmodel.passes.overlap import both_halves
from costmodel.passes.pass_sums import Term
from costmodel.passes.pass_time import pass_time
from costmodel.passes.routed import excess_tokens
from costmodel.passes.tokens import ExpertShares, Tokens, half, runs_in_halves
from costmodel.question.instance import Instance
from costmodel.replica.stage_experts import stage_shares

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

#: numbers in an array ``[MoE layers, chips]`` up to which passes are priced together
_MOST_TOGETHER = 1 << 20


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
                share=np.asarray((term.share + every)[stage]),
                softmax_s=np.asarray((term.softmax_s + every)[stage]),
            )
            for term in self.terms[self.slowest_chip[stage]]
        ]


def stage_layers(instance: Instance, stages: Sequence[Stage]) -> list[tuple[LayerKind, Ints, Ints]]:
    """Kinds of layers, with the first place in ``kind.layers`` and the count of each stage."""
    result = []
    for kind in instance.operations.kinds:
        starts = [bisect_left(kind.layers, stage.layers[0]) for stage in stages]
        ends = [bisect_right(kind.layers, stage.layers[1]) for stage in stages]
        first = np.array(starts, dtype=np.int64)
        result.append((kind, first, np.array(ends, dtype=np.int64) - first))
    return result


def stage_times(
    instance: Instance,
    layout: Layout,
    passes: Sequence[StagePass],
    *,
    record: bool = False,
    experts: bool = True,
) -> list[StageTimes]:
    """Times of each pass on every stage of its replica; ``record`` keeps the terms.

    On chips of several types the slowest type decides. Without ``experts`` routed experts and their exchange take no time: for
    those who ask for other parts alone, on chips of one type.
    """
    found: dict[int, StageTimes] = {}
    for halved, types, members in _together(instance, passes):
        some = [passes[index] for index in members]
        if halved:
            some = [replace(one, tokens=half(one.tokens)) for one in some]
        routed = experts or len(types) > 1
        timed = _timed(instance, layout, some, types, halved=halved, record=record, experts=routed)
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
        halved = bool(
            runs_in_halves(instance.scenario.two_batch_overlap, one.replica.shape.attention_dp)
        )
        alike.setdefault((halved, _types(instance, one.replica.stages)), []).append(index)
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
                    share=(term.share + every)[stages],
                    softmax_s=(term.softmax_s + every)[stages],
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
    experts: bool,
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
    whole = np.repeat(np.array([float(operations.moe is None or not one.replica.cuts_experts) for one in passes]), depth)  # fmt: skip
    rates = GroupRates.side_by_side([one.rates for one in passes])
    kinds: list[tuple[LayerKind, Array]] = []
    shared: list[ExpertShares | None] = []
    skew, moe_layers = np.zeros(count), np.zeros(count)
    routed = tokens.rows * ranks * tokens.fill
    for kind, starts, counts in stage_layers(instance, stages):
        kinds.append((kind, counts.astype(float)))
        if kind.moe is None or not experts:
            shared.append(None)
            continue
        shares = stage_shares(instance, layout, stages, kind, starts, counts, routed)
        shared.append(shares)
        realised = shares.busiest_load + shares.per_layer(
            whole * _excess(instance, kind, routed, tp * ranks)
        )
        skew += shares.over_layers(realised) * (tp * ranks)
        moe_layers += counts
    is_last = np.zeros(count)
    is_last[np.cumsum(depth) - 1] = 1.0
    total = np.full(count, -np.inf)
    parts: dict[str, Array] = {}
    slowest, terms = [""] * count, {}
    for name in types:
        here = np.array([len(types) == 1 or name in _types(instance, [stage]) for stage in stages])
        chip = next(
            placed.chip
            for placed in map(instance.cluster.chip, passes[0].replica.chips)
            if placed.chip.name == name
        )
        efficiency = instance.profile.for_chip(name)
        timed = pass_time(
            ChipGroup.of(operations, tp, ranks, chip, efficiency, rates, whole), kinds, tokens, shared,
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
        slowest_yet = bool(slower.all())
        for part, spent in own.items():
            parts[part] = spent if slowest_yet else np.where(slower, spent, parts.get(part, 0.0))
    imbalance = np.where(moe_layers > 0, skew / np.maximum(moe_layers, 1), 1.0)
    return StageTimes(total, parts, imbalance, slowest, terms)


def _excess(instance: Instance, kind: LayerKind, tokens: Array, chips: Array) -> Array:
    """Share of a layer's routed tokens that the busiest chip has beyond its expected share, stage by stage.

    Of chips of several types that of the first type: all have the same noise under a shipped profile.
    """
    assert kind.moe is not None
    noise = instance.profile.for_chip(instance.cluster.chip_names[0]).routing_noise
    met = np.maximum(tokens * kind.moe.top_k, 1e-300)
    return np.asarray(excess_tokens(met, chips, noise) / met)


def _types(instance: Instance, stages: Sequence[Stage]) -> tuple[str, ...]:
    """Types of the chips of some stages, by name, in order of first use."""
    names, chip = instance.cluster.chip_names, instance.cluster.chip
    if len(names) == 1:
        return names
    return tuple(dict.fromkeys([chip(at).chip.name for stage in stages for at in stage.chips]))
