"""Replicas from shapes: chips to stages, sequences to chips, and what a KV hand-over takes from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costmodel.layout.layout import KvShare, Replica, Role, Shape, Stage, spread
from costmodel.question.instance import Instance
from costmodel.replica import memory
from costmodel.replica.fleet import transfer_bytes_per_chip
from costmodel.replica.held import cache_bytes
from solver.place.held_kv import with_idle
from solver.shapes.least_rates import EVERY_PAIR
from solver.shapes.pools import Pool
from solver.shapes.shapes import ROLES
from solver.shapes.stands import neighbours_matter

#: first and last layer of each stage
Stages = Sequence[tuple[int, int]]


def stage_chips(shape: dict[str, int], pools: Sequence[Sequence[str]]) -> list[list[str]]:
    """Chips of each stage, from those taken in each pool, in order."""
    flat = [chip for pool in pools for chip in pool]
    width = shape["tp"] * shape["attention_dp"]
    return [flat[s * width : (s + 1) * width] for s in range(shape["pp"])]


def hand_over_s(instance: Instance, home: Pool, tp: int, pp: int) -> tuple[float, float]:
    """KV hand-over from a pool's chips to the farthest and to the nearest other domain or chip, seconds."""
    cluster = instance.cluster
    sources, inside = [home.chips[0]], 2
    if neighbours_matter(cluster, home.domain):
        inside = len(cluster.domains[home.domain].usable)
        sources = list(home.chips) if inside <= EVERY_PAIR else [home.chips[0], home.chips[-1]]
    targets = [
        placed.id
        for domain in cluster.domains
        for placed in domain.usable[: inside if domain.index == home.domain else 1]
    ]
    moved = transfer_bytes_per_chip(instance, tp, pp)
    times = [
        float(cluster.rate("send", (source, target)).time(moved))
        for source in sources
        for target in targets
        if source != target
    ]
    return max(times, default=0.0), min(times, default=0.0)


def build_replica(
    instance: Instance,
    shape: dict[str, int],
    per_rank: int,
    stages: Stages,
    slots: tuple[int, ...],
    chips: Sequence[Sequence[str]],
    expert_maps: Sequence[str] | None,
    extra: int = 0,
    idle: int = 0,
    layer_slots: Mapping[int, tuple[int, ...]] | None = None,
) -> Replica:
    """Assemble a replica. ``chips[s]`` are the chips of stage ``s``, rank by rank.

    ``expert_maps[s]``: name of the stage's expert map. The first ``extra`` ranks hold one sequence
    more; ``idle`` conversations wait on each rank, where the plan of the search says. ``layer_slots``: layers whose slots are
    not ``slots``.
    """
    tp, ranks, pp = shape["tp"], shape["attention_dp"], shape["pp"]
    role: Role = ROLES[shape["role"]]
    even = len(set(slots)) == 1
    built = tuple(
        Stage(
            layers=layers,
            chips=tuple(here),
            slots_per_chip=(slots[0] if even else slots) if slots else None,
            expert_map=None if expert_maps is None else expert_maps[number],
            layer_slots={
                layer: own
                for layer, own in (layer_slots or {}).items()
                if layers[0] <= layer <= layers[1] and own != slots
            }
            or None,
        )
        for number, (layers, here) in enumerate(zip(stages, chips, strict=True))
    )
    context = instance.workload.input_tokens if role == "prefill" else instance.final_context
    shares = []
    sequences = [per_rank * pp + (rank < extra) for rank in range(ranks)]
    # homes of each rank's sequences over its chips
    homes = [spread(count, tp * pp) for count in sequences]
    for number, (layers, here) in enumerate(zip(stages, chips, strict=True)):
        inside = [
            (kind, float(sum(layers[0] <= layer <= layers[1] for layer in kind.layers)))
            for kind in instance.operations.kinds
        ]
        one = cache_bytes(instance, inside, tp, context)
        if number == pp - 1:
            one += float(memory.draft_kv_bytes(instance.operations, tp, context))
        for place, chip in enumerate(here):
            shares.append(
                KvShare(
                    chip=chip,
                    tier=instance.kv_plan.in_flight(role),
                    sequences=homes[place // tp][number * tp + place % tp],
                    bytes=one * sequences[place // tp],
                )
            )
    replica = Replica(
        role=role,
        shape=Shape(
            tp=tp,
            ep=tp * ranks if slots else 1,
            pp=pp,
            attention_dp=ranks,
            batch=sum(sequences),
        ),
        stages=built,
        kv=tuple(shares),
    )
    waits_in = instance.kv_plan.idle
    if not idle or waits_in is None:
        return replica
    return with_idle(instance, replica, waits_in, idle)
