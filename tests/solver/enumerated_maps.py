"""Every map of experts of a tiny replica, all at once, and those that no other is quicker than."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, product

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.moe_load import expert_shares
from costmodel.layout.layout import ExpertMap, Layout, Replica
from costmodel.passes.communication import GroupRates, rates_of_chips
from costmodel.passes.group import ChipGroup
from costmodel.passes.pass_time import pass_time
from costmodel.passes.tokens import ExpertShares, Tokens, half
from costmodel.question.instance import Instance
from costmodel.replica.exchanges import moved_in
from costmodel.replica.fleet import NOTHING
from costmodel.replica.replica import replica_schedule
from costmodel.rules import engine_runs


def placements(experts: int, slots: tuple[int, ...]) -> NDArray[np.int64]:
    """``[ways, slots]``: every way to fill the chips' slots with distinct experts, none missing.

    Chips with equally many slots are alike: only one order of their contents is kept.
    """
    return _placements(experts, slots)


@lru_cache
def _placements(experts: int, slots: tuple[int, ...]) -> NDArray[np.int64]:
    found = []
    sizes = sorted(set(slots), reverse=True)
    groups = [
        combinations_with_replacement(list(combinations(range(experts), size)), slots.count(size))
        for size in sizes
    ]
    for parts in product(*groups):
        chips = [chip for part in parts for chip in part]
        if {expert for chip in chips for expert in chip} == set(range(experts)):
            found.append(tuple(expert for chip in chips for expert in chip))
    return np.array(found, dtype=np.int64)


def layer_times(
    instance: Instance, draft: Replica, rates: GroupRates, layer: int, tokens: Tokens
) -> NDArray[np.float64]:
    """Seconds of a MoE layer under every placement of its experts ``[ways, sums]``.

    What adds up over layers: all of it, or of a pass in two halves experts, dispatch and combine apart.
    """
    operations, shape = instance.operations, draft.shape
    kind = operations.kinds[operations.kind_of_layer()[layer]]
    assert kind.moe is not None
    slots = draft.stages[0].slots()
    ways = placements(kind.moe.num_experts, slots)
    row = kind.moe_rows[kind.layers.index(layer)]
    rows = float(np.asarray(tokens.decode) + np.asarray(tokens.prefill))
    shares = expert_shares(
        np.repeat(instance.expert_loads[row : row + 1], len(ways), axis=0), ways, slots,
        kind.moe.top_k, rows * shape.attention_dp * tokens.fill,
    )  # fmt: skip
    chip = instance.cluster.chip(draft.stages[0].chips[0]).chip
    timed = pass_time(
        ChipGroup.of(
            operations, np.full(len(ways), shape.tp), np.full(len(ways), shape.attention_dp), chip,
            instance.profile.for_chip(chip.name), rates,
        ),
        [(kind, 1.0)], tokens, [ExpertShares(shares.load[:, None, :], shares.touched[:, None, :])], with_head=False,
    )  # fmt: skip
    if in_halves(instance, draft):
        added = [timed.parts[part] for part in ("routed_experts", "dispatch", "combine")]
    else:
        added = [timed.total_s(instance.profile.combination)]
    return np.stack([np.broadcast_to(one, (len(ways),)) for one in added], axis=1)


def in_halves(instance: Instance, draft: Replica) -> bool:
    """Whether the draft's passes run in two halves."""
    return instance.scenario.two_batch_overlap and draft.shape.attention_dp > 1


def best_maps(instance: Instance, draft: Replica, also: Sequence[Instance] = ()) -> list[ExpertMap]:
    """Expert maps of which one is best for the draft; ``also``: requests of other kinds, which it serves beside.

    Layers add up, so in a role with one kind of pass each has its own best placement; a mixed replica
    weighs two kinds, and all that are not worse in both are kept. In halves what takes longer of two sums
    counts, stage by stage, and so it does where requests are of several kinds: all that are not worse in any sum of any
    stage are kept.
    """
    passes: list[tuple[Instance, Tokens]] = []
    for asked in (instance, *also):
        plan = replica_schedule(asked, draft)
        passes += [(asked, tokens) for tokens in (plan.decode, plan.prefill) if tokens is not None]
    halved = in_halves(instance, draft)
    if halved:
        passes = [(asked, half(tokens)) for asked, tokens in passes]
    stages = draft.shape.pp if halved or also else 1
    width = len(passes) * (3 if halved else 1)
    moe = instance.operations.moe
    if draft.cuts_experts:  # nothing is placed
        return [{}]
    fixed = _in_order(instance, draft)
    if fixed is not None:
        return [fixed]
    rates = [_rates(asked, draft) for asked, _ in passes]
    sums: list[tuple[tuple[float, ...], ExpertMap]] = [((0.0,) * width * stages, {})]
    for layer in instance.operations.moe_layers:
        stage = next(
            s for s, one in enumerate(draft.stages) if one.layers[0] <= layer <= one.layers[1]
        )
        own = [
            layer_times(asked, draft, one[stage], layer, tokens)
            for one, (asked, tokens) in zip(rates, passes, strict=True)
        ]
        times = np.zeros((len(own[0]), width * stages))
        first = stage * width if stages > 1 else 0
        times[:, first : first + width] = np.concatenate(own, axis=1)
        ways = placements(moe.num_experts if moe else 0, draft.stages[0].slots())
        kept = not_worse(times)
        grown = [
            (tuple(np.add(total, times[way])), {**maps, layer: tuple(ways[way].tolist())})
            for total, maps in sums
            for way in kept
        ]
        alive = not_worse(np.array([total for total, _ in grown]))
        sums = [grown[place] for place in alive]
    return [maps for _, maps in sums]


def _rates(instance: Instance, draft: Replica) -> list[GroupRates]:
    """What the draft's stages exchange tokens at."""
    moe, chip = instance.operations.moe, instance.cluster.chip(draft.stages[0].chips[0]).chip
    return rates_of_chips(
        instance.cluster, [stage.chips for stage in draft.stages], draft.shape.tp,
        moe.top_k if moe else 0, instance.profile.for_chip(chip.name), moved_in(instance, draft),
    )  # fmt: skip


def _in_order(instance: Instance, draft: Replica) -> ExpertMap | None:
    """Experts as the engine of the question starts, if it takes no others."""
    engine, moe = instance.engine, instance.operations.moe
    if (
        engine is None
        or moe is None
        or engine.places_experts(instance.model, draft.shape.attention_dp)
    ):
        return None
    row = tuple(slot % moe.num_experts for slot in range(sum(draft.stages[0].slots())))
    return dict.fromkeys(instance.operations.moe_layers, row)


def runs(instance: Instance, draft: Replica, maps: ExpertMap) -> bool:
    """Whether the engine of the question runs a replica, by the evaluator's rule."""
    layout = Layout(replicas=(draft,), expert_maps={"m": maps} if maps else {})
    return not engine_runs.check(instance, layout, NOTHING)


def not_worse(values: NDArray[np.float64]) -> list[int]:
    """Rows of which no other is smaller or equal in every column (of equal ones the first)."""
    kept: list[int] = []
    for place in np.lexsort(values.T[::-1]).tolist():
        if not any(np.all(values[other] <= values[place]) for other in kept):
            kept.append(place)
    return kept
