"""The engine that the question names runs every replica as it stands."""

from __future__ import annotations

from itertools import accumulate
from math import ceil

from costmodel.layout.layout import Layout, Replica, spread
from costmodel.question.engine import EngineFacts, in_order
from costmodel.question.instance import Instance
from costmodel.replica.exchanges import exchange_in, moved_by
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Shapes, chips, expert slots and placements that the engine cannot be told."""
    engine = instance.engine
    if engine is None:
        return []
    return [
        Violation("engine_runs", f"replicas[{index}]", message)
        for index, replica in enumerate(layout.replicas)
        for message in _broken(instance, engine, layout, replica)
    ]


def _broken(instance: Instance, engine: EngineFacts, layout: Layout, replica: Replica) -> list[str]:
    if replica.apart is not None:
        return []  # rule apart refuses it
    shape = replica.shape
    placed = map(instance.cluster.chip, replica.chips)
    chips = {one.chip.name: one.chip for one in placed}
    if len(chips) > 1:
        return [f"mixes {', '.join(sorted(chips))}; one {engine.title} server has one chip type"]
    (chip,) = chips.values()
    refusal = engine.refusal(
        instance.model, chip, replica.role, shape.tp, shape.attention_dp, shape.pp
    )
    found = [refusal] if refusal else []
    away = sorted({share.tier for share in replica.kv if not share.idle} - {"hbm"})
    if away:
        message = f"every pass reads KV from {away[0]}"
        found.append(f"{message}; {engine.title} keeps the KV of running requests in HBM")
    moe = instance.operations.moe
    if moe is None:
        return found
    found += _exchange(instance, engine, replica)
    if replica.cuts_experts:
        return found  # as engines start without expert parallelism
    if any(stage.unlike for stage in replica.stages):
        return [
            *found,
            f"layers with unlike numbers of expert slots; {engine.title} takes one for all",
        ]
    counts = sorted({count for stage in replica.stages for count in stage.slots()})
    if len(counts) > 1 and not _plain(engine, layout, replica, moe.num_experts):
        message = f"{counts[0]} to {counts[-1]} expert slots per chip"
        return [*found, f"{message}; {engine.title} gives every chip the same number"]
    if len(counts) > 1:
        return found
    if shape.ep > 1 and not engine.places_experts(instance.model, shape.attention_dp):
        spare = counts[0] * shape.ep - moe.num_experts
        if spare and not engine.layouts.spare_in_order:
            message = f"{spare} spare slots; {engine.title} takes none for experts in order"
            return [*found, engine.cited("spare_in_order", message)]
        if not _in_order(layout, replica, moe.num_experts):
            message = f"experts out of order; {engine.title} loads no placement here"
            found.append(engine.cited("placement", message))
    spare = counts[0] * shape.ep - moe.num_experts if counts else 0
    if shape.ep > 1 and spare and not engine.spares_experts(instance.model, shape.attention_dp):
        message = (
            f"{spare} spare slots; the class of {instance.model.name} has none in {engine.title}"
        )
        found.append(engine.cited("spare", message))
    return found


def _exchange(instance: Instance, engine: EngineFacts, replica: Replica) -> list[str]:
    """More tokens in a decode pass than the exchange of experts has room for."""
    backend = exchange_in(instance, replica)
    if backend is None:
        return []
    most = moved_by(instance, backend).most_sequences
    in_pass = ceil(max(replica.rank_sequences(), default=0) / replica.shape.pp)
    if replica.role == "prefill" or in_pass <= most:
        return []
    return [
        f"{in_pass} sequences of a rank in a decode pass; {backend.backend} of {engine.label} has room for "
        f"{most:.0f} ({backend.source})"
    ]


def _plain(engine: EngineFacts, layout: Layout, replica: Replica, num_experts: int) -> bool:
    """Whether every expert lies once, in order, chips differing by one slot, for an engine that does so."""
    slots = tuple(spread(num_experts, replica.shape.ep))
    even = all(stage.slots() == slots for stage in replica.stages)
    return engine.layouts.uneven_in_order and even and _in_order(layout, replica, num_experts)


def _in_order(layout: Layout, replica: Replica, num_experts: int) -> bool:
    """Whether every chip holds the experts that the engine would give it."""
    for stage in replica.stages:
        slots = stage.slots()
        ends = list(accumulate(slots))
        spans = [(end - count, end) for end, count in zip(ends, slots, strict=True)]
        wanted = in_order(num_experts, ends[-1])
        first, last = stage.layers
        for layer, row in layout.experts_of(stage).items():
            if first <= layer <= last and any(
                set(row[start:end]) != set(wanted[start:end]) for start, end in spans
            ):
                return False
    return True
