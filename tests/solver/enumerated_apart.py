"""Every replica of two groups on a tiny cluster, built by hand and priced by the evaluator.

Shares nothing with the search but the numbers of expert slots and of microbatches that are tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from costmodel.apart.price import price_apart
from costmodel.experts.moe_load import expert_shares
from costmodel.layout.layout import Apart, ExpertMap, KvShare, Layout, Replica, Shape, Stage
from costmodel.models.spec import Attention
from costmodel.question.instance import Instance
from costmodel.replica.fleet import NOTHING
from costmodel.rules import rules
from costmodel.tolerance import exceeds
from solver.apart.table import MICROBATCHES
from solver.shapes.shapes import slot_counts
from tests.solver.enumerated_maps import not_worse, placements
from tests.solver.enumeration import Best, kind_of_pool, pools, sequences_of_ranks


def apart_replicas(instance: Instance) -> list[Best]:
    """The best replica of each pair of groups, at its best width, slots, microbatches, batch and placement."""
    found: dict[object, Best] = {}
    for taken, groups in _groups(instance):
        for draft, slots in _drafts(instance, *groups):
            apart = draft.apart
            assert apart is not None
            key = (taken, len(groups[0]), groups[0][0], draft.shape.tp, slots, apart.microbatches)
            best = found.get(key)
            for maps in _maps(instance, draft):
                rate = _rate(instance, draft, maps)
                if rate > (best.rate if best else 0.0):
                    best = Best("decode", taken, draft.shape.tp, 1, slots, rate, draft, maps)
                    found[key] = best
    return list(found.values())


def _groups(instance: Instance) -> Iterator[tuple[tuple[int, ...], tuple[list[str], list[str]]]]:
    """Chips taken in each pool, and those of attention and of experts: in one pool, or each in pools of its own.

    Chips are taken as they are sold together, which both groups share in one pool. In several pools a group takes all of
    each, and these are alike.
    """
    own = pools(instance)
    home = [instance.cluster.chip(chips[0]).domain for chips in own]
    units = [instance.cluster.domains[at].granularity.unit for at in home]
    for at, chips in enumerate(own):
        for both in range(units[at], len(chips) + 1, units[at]):
            for first in range(1, both):
                taken = tuple(both * (at == p) for p in range(len(own)))
                yield taken, (chips[:first], chips[first:both])
    ways: list[dict[int, int]] = [
        {at: count}
        for at, chips in enumerate(own)
        for count in range(units[at], len(chips) + 1, units[at])
    ]
    like = [kind_of_pool(instance, chips) for chips in own]
    for mask in product((0, 1), repeat=len(own)):
        used = [at for at, on in enumerate(mask) if on]
        if len(used) > 1 and len({like[at] for at in used}) == 1:
            ways.append({at: len(own[at]) for at in used})
    for attention, experts in product(ways, ways):
        chosen = [instance.cluster.domains[home[at]] for at in attention | experts]
        if not all(domain.interchangeable_chips for domain in chosen):
            continue  # outside the search space, and the certificate says so
        kinds = [{like[at] for at in one} for one in (attention, experts)]
        homes = [{home[at] for at, kind in enumerate(like) if kind in own} for own in kinds]
        if {home[at] for at in attention} & {home[at] for at in experts}:
            continue
        if kinds[0] != kinds[1] and homes[0] & homes[1]:
            continue  # some domain has chips of both types: outside the search space, and the certificate says so
        both_of = attention | experts
        groups = tuple(
            [chip for at, count in one.items() for chip in own[at][:count]]
            for one in (attention, experts)
        )
        yield (
            tuple(both_of.get(at, 0) for at in range(len(own))), (groups[0], groups[1]),
        )  # fmt: skip


def _drafts(
    instance: Instance, attention: list[str], experts: list[str]
) -> Iterator[tuple[Replica, int]]:
    heads = {
        part.query_heads
        for layer in instance.model.layers
        for part in layer.sublayers
        if isinstance(part, Attention)
    }
    layers = (0, len(instance.model.layers) - 1)
    width, count = len(attention), len(experts)
    home = [instance.cluster.chip(chip).domain for chip in attention]
    for tp, slots in product(range(1, width + 1), slot_counts(instance, count)):
        if width % tp or any(number % tp for number in heads):
            continue
        if any(len(set(home[at : at + tp])) > 1 for at in range(0, width, tp)):
            continue
        each = sorted((slots // count + (i < slots % count) for i in range(count)), reverse=True)
        group = Stage(
            layers=layers, chips=tuple(experts), slots_per_chip=tuple(each), expert_map="m"
        )
        most = instance.limits.max_sequences_per_rank
        for batches, sequences in product(
            MICROBATCHES, sequences_of_ranks(width // tp, most, alike=True)
        ):
            yield Replica(
                role="decode",
                shape=Shape(
                    tp=tp, ep=count, pp=1, attention_dp=width // tp, batch=sum(sequences)
                ),
                stages=(Stage(layers=layers, chips=tuple(attention)),),
                kv=tuple(
                    KvShare(chip=attention[rank * tp], sequences=number)
                    for rank, number in enumerate(sequences)
                ),
                apart=Apart(microbatches=batches, experts=group),
            ), slots  # fmt: skip


def _maps(instance: Instance, draft: Replica) -> Iterator[ExpertMap]:
    """Maps of which one is best: of every layer all placements that others do not beat in load and experts touched."""
    assert draft.apart is not None
    moe = instance.operations.moe
    assert moe is not None
    slots = draft.apart.experts.slots()
    ways = placements(moe.num_experts, slots)
    batches = draft.apart.microbatches
    in_pass = [-(-count // batches) for count in draft.rank_sequences()]
    kept: list[list[tuple[int, ...]]] = []
    for row, _ in enumerate(instance.operations.moe_layers):
        loads = np.repeat(instance.expert_loads[row : row + 1], len(ways), axis=0)
        shares = expert_shares(loads, ways, slots, moe.top_k, float(sum(in_pass)))
        measures = np.stack([shares.load.max(axis=1), shares.touched.max(axis=1)], axis=1)
        kept.append([tuple(ways[at].tolist()) for at in not_worse(measures)])
    for chosen in product(*kept):
        yield dict(zip(instance.operations.moe_layers, chosen, strict=True))


def _rate(instance: Instance, replica: Replica, maps: ExpertMap) -> float:
    """Requests per second, 0 where a rule of structure, HBM or TPOT is broken."""
    layout = Layout(replicas=(replica,), expert_maps={"m": maps})
    if any(check(instance, layout, NOTHING) for check in rules(structure=True).values()):
        return 0.0
    price = price_apart(instance, layout, replica)
    for stage, held in zip(replica.groups, price.stages, strict=True):
        chip = instance.cluster.chip(stage.chips[0]).chip
        if exceeds(float(held.used_bytes.max()), instance.usable_hbm_bytes(chip)):
            return 0.0
    target = instance.slo.tpot
    if target is not None and exceeds(float(price.service.tpot_s), target):
        return 0.0
    return float(price.service.requests_per_s)
