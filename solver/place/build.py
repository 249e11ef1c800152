"""Replicas from shapes: chips to stages, sequences to chips, and what a KV hand-over takes from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costmodel.layout.layout import KvShare, Replica, Role, Shape, Stage, spread
from costmodel.question.instance import Instance
from costmodel.replica.fleet import transfer_bytes_per_chip
from costmodel.replica.hand_over import gate, send_s
from costmodel.replica.kv_bytes import in_flight_bytes
from solver.kv_plan import plan_of
from solver.place.held_kv import with_idle
from solver.shapes.shapes import ROLES
from solver.shapes.stands import neighbours_matter
from topology import Cluster

#: first and last layer of each stage
Stages = Sequence[tuple[int, int]]


def stage_chips(shape: dict[str, int], pools: Sequence[Sequence[str]]) -> list[list[str]]:
    """Chips of each stage, from those taken in each pool, in order; of attention and experts that lie apart."""
    flat = [chip for pool in pools for chip in pool]
    width = shape["tp"] * shape["attention_dp"]
    if "experts" in shape:  # they lie apart
        return [flat[:width], flat[width:]]
    return [flat[s * width : (s + 1) * width] for s in range(shape["pp"])]


def hand_over_s(
    instance: Instance, stages: Sequence[Sequence[str]], tp: int
) -> tuple[float, float, float]:
    """KV hand-over in seconds: wherever decode replicas stand, inside the first domain, and where they stand best.

    From each domain to the farthest other one and inside it; where no other domain can be reached, or the chip is
    alone in its own, the one stands for the other.
    """
    cluster = instance.cluster
    homes: dict[int, list[str]] = {}
    for chips in stages:
        of_stage: dict[int, list[str]] = {}
        for chip in chips:
            of_stage.setdefault(cluster.chip(chip).domain, []).append(chip)
        for home, own in of_stage.items():
            homes.setdefault(home, own)
    moved = transfer_bytes_per_chip(instance, tp, len(stages))
    times = [_from(cluster, home, here, moved) for home, here in homes.items()]
    return max(map(max, times)), times[0][1], min(map(min, times))


def _from(cluster: Cluster, home: int, here: Sequence[str], moved: float) -> tuple[float, float]:
    """The same from some chips of a domain."""
    usable = [placed.id for placed in cluster.domains[home].usable if placed.id != here[0]]
    beside = usable if neighbours_matter(cluster, home) else usable[:1]
    near = send_s(cluster, (here[0], 1.0), beside, moved)
    others = [
        found[0]
        for domain in cluster.domains
        if domain.index != home and domain.usable
        for found in [gate(cluster, [placed.id for placed in domain.usable])]
        if found is not None
    ]
    far = send_s(cluster, gate(cluster, here), others, moved) if others else None
    if far is None:
        far = near
    return far or 0.0, near or 0.0


def build_replica(
    instance: Instance,
    shape: dict[str, int],
    sequences: Sequence[int],
    stages: Stages,
    slots: tuple[int, ...],
    chips: Sequence[Sequence[str]],
    expert_maps: Sequence[str] | None,
    *,
    idle: int = 0,
    layer_slots: Mapping[int, tuple[int, ...]] | None = None,
) -> Replica:
    """Assemble a replica. ``chips[s]`` are the chips of stage ``s``, rank by rank.

    ``sequences`` of each rank, over all microbatches; ``expert_maps[s]``: name of the stage's expert map; ``slots``: none for
    a dense model, 0 on each chip where experts are cut over all. ``idle`` conversations wait on each rank, where the plan
    of the search says. ``layer_slots``: layers whose slots are not ``slots``.
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
    replica = Replica(
        role=role,
        shape=Shape(
            tp=tp,
            ep=tp * ranks if any(slots) else 1,
            pp=pp,
            attention_dp=ranks,
            batch=sum(sequences),
        ),
        stages=built,
        kv=kv_shares(instance, role, tp, built, sequences),
    )
    waits_in = plan_of(instance).idle
    if not idle or waits_in is None:
        return replica
    return with_idle(instance, replica, waits_in, idle)


def kv_shares(
    instance: Instance, role: Role, tp: int, stages: Sequence[Stage], sequences: Sequence[int]
) -> tuple[KvShare, ...]:
    """KV of sequences in flight on every chip of a replica. ``sequences`` of each rank, over all microbatches."""
    pp = len(stages)
    # homes of each rank's sequences over its chips
    homes = [spread(count, tp * pp) for count in sequences]
    shares = []
    for number, stage in enumerate(stages):
        one = in_flight_bytes(instance, role, stage.layers, tp)
        for place, chip in enumerate(stage.chips):
            shares.append(
                KvShare(
                    chip=chip,
                    tier=plan_of(instance).in_flight(role),
                    sequences=homes[place // tp][number * tp + place % tp],
                    bytes=one * sequences[place // tp],
                )
            )
    return tuple(shares)
