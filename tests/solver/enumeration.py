"""Every layout of a tiny instance, priced by the cost model: what the solver's answers are held against.

Shares nothing with the search but the numbers of expert slots that are tried. Replicas take any chips of one type, in any pools; they are built by hand
(role, tensor parallel width, attention ranks, stages and their cuts, batch, expert slots), the placements
of experts are tried all at once in numpy, and every mix of replicas is tried by dynamic programming over
the chips taken in each pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, pairwise, permutations, product

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.moe_load import expert_shares
from costmodel.layout.layout import ExpertMap, KvShare, Layout, Replica, Role, Shape, Stage
from costmodel.models.spec import Attention
from costmodel.passes.communication import GroupRates, rates_of_chips
from costmodel.passes.group import ChipGroup
from costmodel.passes.pass_time import pass_time
from costmodel.passes.tokens import ExpertShares, Tokens
from costmodel.question.instance import Instance
from costmodel.replica.exchanges import moved_in
from costmodel.replica.fleet import NOTHING, transfer_bytes_per_chip
from costmodel.replica.replica import ReplicaPrice, price_replica, replica_schedule
from costmodel.rules import engine_runs
from costmodel.tolerance import exceeds
from solver.shapes.shapes import slot_counts

ROLES: tuple[Role, ...] = ("prefill", "decode", "mixed")

#: chips taken in each pool; pools are (domain, chip type)
Taken = tuple[int, ...]


@dataclass(frozen=True)
class Best:
    """The best replica of one shape on some chips."""

    role: Role
    taken: Taken
    tp: int
    pp: int
    slots: int
    rate: float
    replica: Replica
    maps: ExpertMap


def pools(instance: Instance) -> list[list[str]]:
    """Usable chips of one type in one domain each."""
    found: dict[tuple[int, str], list[str]] = {}
    for placed in instance.cluster.usable:
        found.setdefault((placed.domain, placed.chip.name), []).append(placed.id)
    return list(found.values())


def takings(instance: Instance) -> Iterator[Taken]:
    """Every number of chips in each pool, of one chip type; of like pools the first take most."""
    own = pools(instance)
    kinds = [kind_of_pool(instance, chips) for chips in own]
    for taken in product(*(range(len(chips) + 1) for chips in own)):
        if not any(taken):
            continue
        if len({kinds[p][0] for p, count in enumerate(taken) if count}) > 1:
            continue
        ordered = all(
            taken[a] >= taken[b]
            for a, b in combinations(range(len(own)), 2)
            if kinds[a] == kinds[b]
        )
        if ordered:
            yield taken


def kind_of_pool(instance: Instance, chips: list[str]) -> tuple[str, int, object]:
    """Equal for pools that cannot be told apart; the chip type comes first."""
    placed = instance.cluster.chip(chips[0])
    return placed.chip.name, len(chips), instance.cluster.domains[placed.domain].signature


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


def cuts(layers: int, stages: int) -> Iterator[list[tuple[int, int]]]:
    """Every cut of the layers into consecutive stages."""
    for ends in combinations(range(1, layers), stages - 1):
        edges = [0, *ends, layers]
        yield [(a, b - 1) for a, b in pairwise(edges)]


def sequences_of_ranks(ranks: int, most: int, *, alike: bool) -> list[tuple[int, ...]]:
    """Every number of sequences on each rank, one in all at least; in one order where ranks are alike."""
    every = product(range(most + 1), repeat=ranks)
    return [
        counts
        for counts in every
        if any(counts) and (not alike or all(a >= b for a, b in pairwise(counts)))
    ]


def drafts(instance: Instance, taken: Taken) -> Iterator[tuple[Replica, int]]:
    """Every replica on these chips before its experts are placed, with its expert slots in all."""
    num_layers = len(instance.model.layers)
    heads = {
        part.query_heads
        for layer in instance.model.layers
        for part in layer.sublayers
        if isinstance(part, Attention)
    }
    moe = instance.operations.moe
    limits = instance.limits
    own = pools(instance)
    total = sum(taken)
    used = [p for p, count in enumerate(taken) if count]
    for pp in range(1, min(limits.max_pipeline_stages, num_layers) + 1):
        width, rest = divmod(total, pp)
        if rest or (pp > 1 and any(taken[p] % width for p in used)):
            continue
        if moe is None and pp == 1 and len(used) > 1:
            continue  # a stage of a dense model is one attention rank, which lies in one domain
        # in a pipeline the order of the pools matters where their links differ
        orders = permutations(used) if pp > 1 else [tuple(used)]
        for order, tp in product(orders, range(1, width + 1)):
            if any(count % tp for count in heads) or width % tp:
                continue
            if pp == 1 and any(taken[p] % tp for p in used):
                continue  # the shards of a rank lie in one domain
            ranks = width // tp
            if moe is None and ranks > 1:
                continue
            ids = [chip for p in order for chip in own[p][: taken[p]]]
            for role, slots in product(ROLES, slot_counts(instance, width)):
                if role == "mixed" and pp > 1:
                    continue  # outside the search space, and the certificate says so
                most = limits.max_sequences_per_rank
                if role == "prefill":
                    in_pass = limits.prefill_chunk_tokens // instance.workload.new_tokens
                    most = min(most, pp * max(1, in_pass))
                each = sorted(
                    (slots // width + (i < slots % width) for i in range(width)), reverse=True
                )
                batches = sequences_of_ranks(ranks, most, alike=len(set(each)) == 1)
                for sequences, cut in product(batches, cuts(num_layers, pp)):
                    stages = tuple(
                        Stage(
                            layers=part,
                            chips=tuple(ids[s * width : (s + 1) * width]),
                            slots_per_chip=tuple(each) if moe else None,
                            expert_map="m" if moe else None,
                        )
                        for s, part in enumerate(cut)
                    )
                    kv = tuple(
                        KvShare(chip=stages[0].chips[rank * tp], sequences=count)
                        for rank, count in enumerate(sequences)
                    )
                    shape = Shape(
                        tp=tp, ep=width if moe else 1, pp=pp, attention_dp=ranks,
                        batch=sum(sequences),
                    )  # fmt: skip
                    yield Replica(role=role, shape=shape, stages=stages, kv=kv), slots


def layer_times(
    instance: Instance, draft: Replica, rates: GroupRates, layer: int, tokens: Tokens
) -> NDArray[np.float64]:
    """Seconds of a MoE layer under every placement of its experts ``[ways]``."""
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
    return np.broadcast_to(timed.total_s(instance.profile.combination), (len(ways),))


def best_maps(instance: Instance, draft: Replica) -> list[ExpertMap]:
    """Expert maps of which one is best for the draft.

    Layers add up, so in a role with one kind of pass each has its own best placement; a mixed replica
    weighs two kinds, and all that are not worse in both are kept.
    """
    plan = replica_schedule(instance, draft)
    passes = [tokens for tokens in (plan.decode, plan.prefill) if tokens is not None]
    moe = instance.operations.moe
    fixed = _in_order(instance, draft)
    if fixed is not None:
        return [fixed]
    rates = rates_of_chips(
        instance.cluster, [stage.chips for stage in draft.stages], draft.shape.tp,
        moe.top_k if moe else 0,
        instance.profile.for_chip(instance.cluster.chip(draft.stages[0].chips[0]).chip.name),
        moved_in(instance, draft),
    )  # fmt: skip
    sums: list[tuple[tuple[float, ...], ExpertMap]] = [((0.0,) * len(passes), {})]
    for layer in instance.operations.moe_layers:
        stage = next(
            s for s, one in enumerate(draft.stages) if one.layers[0] <= layer <= one.layers[1]
        )
        times = np.stack(
            [layer_times(instance, draft, rates[stage], layer, tokens) for tokens in passes], axis=1
        )
        ways = placements(moe.num_experts if moe else 0, draft.stages[0].slots())
        kept = _not_worse(times)
        grown = [
            (tuple(np.add(total, times[way])), {**maps, layer: tuple(ways[way].tolist())})
            for total, maps in sums
            for way in kept
        ]
        alive = _not_worse(np.array([total for total, _ in grown]))
        sums = [grown[place] for place in alive]
    return [maps for _, maps in sums]


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


def _runs(instance: Instance, draft: Replica, maps: ExpertMap) -> bool:
    """Whether the engine of the question runs a replica, by the evaluator's rule."""
    layout = Layout(replicas=(draft,), expert_maps={"m": maps} if maps else {})
    return not engine_runs.check(instance, layout, NOTHING)


def _not_worse(values: NDArray[np.float64]) -> list[int]:
    """Rows of which no other is smaller or equal in every column (of equal ones the first)."""
    kept: list[int] = []
    for place in np.lexsort(values.T[::-1]).tolist():
        if not any(np.all(values[other] <= values[place]) for other in kept):
            kept.append(place)
    return kept


def rate_of(
    instance: Instance, replica: Replica, maps: ExpertMap, hand_over_s: float
) -> tuple[float, ReplicaPrice]:
    """Requests per second of a replica, 0 if it breaks a limit; by the evaluator's pricing."""
    layout = Layout(replicas=(replica,), expert_maps={"m": maps} if maps else {})
    price = price_replica(instance, layout, replica)
    for stage, own in zip(price.stages, replica.stages, strict=True):
        hbm = np.array(
            [instance.usable_hbm_bytes(instance.cluster.chip(chip).chip) for chip in own.chips]
        )
        if exceeds(float((stage.used_bytes / hbm).max()), 1.0):
            return 0.0, price
    slo, service = instance.slo, price.service
    assert slo.tpot is not None
    assert slo.ttft is not None
    late = exceeds(float(service.ttft_s) + hand_over_s, slo.ttft)
    if exceeds(float(service.tpot_s), slo.tpot) or late:
        return 0.0, price
    return float(service.requests_per_s), price


def hand_over_s(instance: Instance, replica: Replica) -> tuple[float, float]:
    """Longest and shortest KV hand-over of a prefill replica, over all chips it does not use.

    A decode replica has its first stage's first chip anywhere else. Infinite where nothing is left.
    """
    if replica.role != "prefill":
        return 0.0, 0.0
    source = replica.stages[0].chips[0]
    moved = transfer_bytes_per_chip(instance, replica.shape.tp, replica.shape.pp)
    times = [
        instance.cluster.rate("send", (source, placed.id)).time(moved)
        for placed in instance.cluster.usable
        if placed.id not in replica.chips
    ]
    return max(times, default=np.inf), min(times, default=np.inf)


def best_replicas(instance: Instance, *, near: bool) -> list[Best]:
    """The best replica of every shape; ``near``: its KV goes to the nearest chip, else the farthest."""
    found: dict[tuple[object, ...], Best] = {}
    for taken in takings(instance):
        for draft, slots in drafts(instance, taken):
            transfer = hand_over_s(instance, draft)[int(near)]
            if not np.isfinite(transfer):
                continue
            key = (draft.role, taken, draft.shape.tp, draft.shape.pp, slots)
            for maps in best_maps(instance, draft) if slots else [{}]:
                if not _runs(instance, draft, maps):
                    continue
                rate, _ = rate_of(instance, draft, maps, transfer)
                if rate > (found[key].rate if key in found else 0.0):
                    found[key] = Best(
                        draft.role, taken, draft.shape.tp, draft.shape.pp, slots, rate, draft, maps
                    )
    return list(found.values())


def fleets(instance: Instance, replicas: list[Best]) -> list[tuple[Taken, NDArray[np.float64]]]:
    """Chips taken and rates ``(prefill, decode, mixed)`` of every fleet that no other on them beats."""
    own = pools(instance)
    sizes = [len(chips) for chips in own]
    kinds = [kind_of_pool(instance, chips) for chips in own]
    options: dict[tuple[Taken, Role], float] = {}
    for best in replicas:
        for taken in _swapped(best.taken, kinds):
            key = (taken, best.role)
            options[key] = max(options.get(key, 0.0), best.rate)
    states: dict[Taken, NDArray[np.float64]] = {(0,) * len(sizes): np.zeros((1, 3))}
    # every fleet is met by adding its replicas in this one order
    for (taken, role), rate in sorted(options.items()):
        gain = np.array([rate * (role == name) for name in ROLES])
        for state in sorted(product(*(range(size + 1) for size in sizes))):
            if state not in states:
                continue
            after = tuple(a + b for a, b in zip(state, taken, strict=True))
            if all(a <= size for a, size in zip(after, sizes, strict=True)):
                rows = np.concatenate([states.get(after, np.zeros((0, 3))), states[state] + gain])
                states[after] = rows[_not_worse(-rows)]
    return list(states.items())


def _swapped(taken: Taken, kinds: list[tuple[str, int, object]]) -> set[Taken]:
    """The same numbers of chips in other pools of the same kinds."""
    return {
        tuple(taken[p] for p in order)
        for order in permutations(range(len(taken)))
        if all(kinds[p] == kinds[q] for p, q in enumerate(order))
    }


def least_cost(instance: Instance, replicas: list[Best]) -> float | None:
    """Least dollars per hour and request per second of any fleet, ``None`` if none serves."""
    own = pools(instance)
    price = [instance.cluster.chip(chips[0]).chip.usd_per_hour for chips in own]
    whole = sum(usd * len(chips) for usd, chips in zip(price, own, strict=True))
    wanted = instance.scenario.rate
    found = np.inf
    for taken, rates in fleets(instance, replicas):
        served = float((np.minimum(rates[:, 0], rates[:, 1]) + rates[:, 2]).max())
        used = sum(usd * count for usd, count in zip(price, taken, strict=True))
        if wanted is not None:
            if not exceeds(wanted, served):
                found = min(found, used / wanted)
        elif served > 0:
            found = min(found, (whole if instance.scenario.pay == "whole" else used) / served)
    return None if np.isinf(found) else float(found)


def with_rate(instance: Instance, rate: float) -> Instance:
    """The same instance asked for so many requests per second."""
    return replace(instance, scenario=instance.scenario.model_copy(update={"rate": rate}))
