"""Every layout of a tiny instance, priced by the cost model: what the solver's answers are held against.

Shares nothing with the search but the numbers of expert slots that are tried. Replicas take any chips of one type, in any pools; they are built by hand
(role, tensor parallel width, attention ranks, stages and their cuts, batch, expert slots), the placements
of experts are tried all at once in numpy, and every mix of replicas is tried by dynamic programming over
the chips taken in each pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations, product

import numpy as np

from costmodel.layout.layout import ExpertMap, KvShare, Layout, Replica, Role, Shape, Stage
from costmodel.models.spec import Attention
from costmodel.question.instance import Instance
from costmodel.replica.fleet import transfer_bytes_per_chip
from costmodel.replica.replica import ReplicaPrice, price_replica
from costmodel.tolerance import exceeds
from solver.shapes.shapes import cuts_experts, pipes_mixed, slot_counts
from tests.solver.enumerated_maps import best_maps, runs

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
    """Usable chips of one type in one domain each, in rows of as many as are sold together."""
    found: dict[tuple[int, str], list[str]] = {}
    for domain in instance.cluster.domains:
        unit = domain.granularity.unit
        for first in range(0, len(domain.chips) - unit + 1, unit):
            row = domain.chips[first : first + unit]
            if all(placed.usable for placed in row) and len({p.chip.name for p in row}) == 1:
                own = found.setdefault((domain.index, row[0].chip.name), [])
                own += [placed.id for placed in row]
    return list(found.values())


def takings(instance: Instance) -> Iterator[Taken]:
    """Every number of chips in each pool, of one chip type; of like pools the first take most."""
    own = pools(instance)
    kinds = [kind_of_pool(instance, chips) for chips in own]
    homes = [instance.cluster.domains[instance.cluster.chip(chips[0]).domain] for chips in own]
    for taken in product(
        *(
            range(0, len(chips) + 1, home.granularity.unit)
            for chips, home in zip(own, homes, strict=True)
        )
    ):
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
        # in a pipeline the order of the pools matters where their links differ
        orders = permutations(used) if pp > 1 else [tuple(used)]
        for order, tp in product(orders, range(1, width + 1)):
            if any(count % tp for count in heads) or width % tp:
                continue
            if pp == 1 and any(taken[p] % tp for p in used) and not wide(instance, taken, tp):
                continue  # the shards of a rank lie in one domain, or evenly in several
            ranks = width // tp
            if moe is None and ranks > 1:
                continue
            ids = [chip for p in order for chip in own[p][: taken[p]]]
            tried = slot_counts(instance, width)
            cut = cuts_experts(instance, width)
            for role, slots in product(ROLES, [*tried, 0] if cut else tried):
                if role == "mixed" and pp > 1 and not pipes_mixed(instance):
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
                            slots_per_chip=(tuple(each) if slots else 0) if moe else None,
                            expert_map="m" if slots else None,
                        )
                        for s, part in enumerate(cut)
                    )
                    kv = tuple(
                        KvShare(chip=stages[0].chips[rank * tp], sequences=count)
                        for rank, count in enumerate(sequences)
                    )
                    shape = Shape(
                        tp=tp, ep=width if slots else 1, pp=pp, attention_dp=ranks,
                        batch=sum(sequences),
                    )  # fmt: skip
                    yield Replica(role=role, shape=shape, stages=stages, kv=kv), slots


def wide(instance: Instance, taken: Taken, tp: int) -> bool:
    """Whether ranks take as many chips in each of several like domains whose chips are all as near to each other."""
    counts = [count for count in taken if count]
    used = [own for own, count in zip(pools(instance), taken, strict=True) if count]
    if len({kind_of_pool(instance, own) for own in used}) > 1:
        return False
    switched = all(domain.fabric.interchangeable_chips for domain in instance.cluster.domains)
    domains, rest = divmod(tp, counts[0])
    return switched and len(set(counts)) == 1 and not rest and len(counts) % domains == 0


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
                if not runs(instance, draft, maps):
                    continue
                rate, _ = rate_of(instance, draft, maps, transfer)
                if rate > (found[key].rate if key in found else 0.0):
                    found[key] = Best(
                        draft.role, taken, draft.shape.tp, draft.shape.pp, slots, rate, draft, maps
                    )
    return list(found.values())
