"""Collective rates of the chips that a shape stands for: what the evaluator finds for such chips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from costmodel.passes.communication import (
    GroupRates,
    Moved,
    achieved,
    exchange_rate,
    joined,
    rates_of_chips,
)
from costmodel.question.exchange import Ranks, domain_runs
from costmodel.question.instance import Instance
from costmodel.replica.exchanges import exchange_of, moved_by
from solver.shapes.pools import PoolClass, pick_chips
from solver.shapes.shapes import ROLES
from solver.shapes.spans import Parts, pools_of
from topology import Chip, Cluster


def group_rates(instance: Instance, pool_class: PoolClass, shape: Mapping[str, int]) -> GroupRates:
    """Rates of a representative group of a class: what :func:`rates_of_chips` finds for its chips.

    ``shape``: a row of a :class:`solver.shapes.shapes.ShapeTable`.
    """
    tp, pp, slices, stage_pools = (shape[name] for name in ("tp", "pp", "slices", "stage_pools"))
    stage_chips = tp * shape["attention_dp"]
    cluster: Cluster = instance.cluster
    efficiency = instance.profile.for_chip(pool_class.chip.name)
    moe = instance.operations.moe
    home = pool_class.domain
    reduce = dispatch = send = (0.0, 0.0)
    runs = [[stage_chips // stage_pools] * stage_pools] * pp
    moved = moved_for(instance, pool_class.chip, shape, runs)
    in_pool = stage_chips // stage_pools
    if tp > in_pool:  # a rank over several domains
        ranks_chips = _chips(cluster, pool_class, in_pool, tp // in_pool)
        reduce = achieved(partial(cluster.rate, "all-reduce", ranks_chips), efficiency.all_reduce)
    elif tp > 1:
        reduce = achieved(
            partial(cluster.rate_for, "all-reduce", home, tp, 1), efficiency.all_reduce
        )
    if moe is not None and stage_chips > 1:
        own = _chips(cluster, pool_class, stage_chips // stage_pools, stage_pools)
        find = partial(exchange_rate, cluster, own, moe.top_k, moved)
        dispatch = moved.rate(find, stage_chips, efficiency)
    if pp > 1:
        pools = 2 if slices > 1 else 1
        find = partial(cluster.rate, "send", _chips(cluster, pool_class, 2 // pools, pools))
        send = achieved(find, efficiency.all_to_all)
    found = (*reduce, *dispatch, *send, *moved.numbers)
    return GroupRates(*(np.asarray(value) for value in found))


def _chips(cluster: Cluster, pool_class: PoolClass, count: int, pools: int) -> list[str]:
    """So many chips in each of the first pools."""
    return [
        chip
        for pool in pool_class.pools[:pools]
        for chip in pick_chips(cluster, pool.domain, pool.chips, count, leaving=pools > 1)
    ]


def span_rates(
    instance: Instance, classes: Sequence[PoolClass], parts: Parts, shape: Mapping[str, int]
) -> tuple[GroupRates, bool]:
    """Rates of a span's stages as one, and whether they are exactly those of every stage.

    Of collectives inside a stage the quickest is taken, which bounds all stages; hand-offs are
    averaged over the stages, which keeps their sum.
    """
    tp, pp = shape["tp"], shape["pp"]
    stage_chips = tp * shape["attention_dp"]
    chips = [
        chip
        for pool, (_, count) in zip(pools_of(parts, classes), parts, strict=True)
        for chip in pick_chips(instance.cluster, pool.domain, pool.chips, count, leaving=True)
    ]
    moe = instance.operations.moe
    chip = classes[parts[0][0]].chip
    of_stages = [chips[s * stage_chips : (s + 1) * stage_chips] for s in range(pp)]
    runs = domain_runs(instance.cluster, of_stages)
    stages = rates_of_chips(
        instance.cluster, of_stages, tp, moe.top_k if moe else 0,
        instance.profile.for_chip(chip.name),
        moved_for(instance, chip, shape, runs),
    )  # fmt: skip
    return as_one(stages)


def as_one(stages: Sequence[GroupRates]) -> tuple[GroupRates, bool]:
    """Rates of some stages as one, and whether they are exactly those of every stage.

    Of collectives inside a stage the quickest is taken, hand-offs are averaged. Of stages that no links join
    the first.
    """
    for own in stages:
        if not joined(own):
            return own, False
    inside = [n for n in GroupRates.__dataclass_fields__ if not n.startswith("send")]
    alike = all(len({float(getattr(s, name)) for s in stages}) == 1 for name in inside)
    return GroupRates(
        **{name: np.min([getattr(s, name) for s in stages], axis=0) for name in inside},
        **{
            name: np.mean([getattr(s, name) for s in stages], axis=0)
            for name in ("send_latency_s", "send_s_per_byte")
        },
    ), alike


def moved_for(
    instance: Instance, chip: Chip, shape: Mapping[str, int], runs: Sequence[Sequence[int]]
) -> Moved:
    """What the evaluator finds for a replica of the shape.

    ``shape``: a row of a :class:`solver.shapes.shapes.ShapeTable`; ``runs``: its ranks in a row on one domain, stage
    by stage.
    """
    even = shape["slots"] % (shape["tp"] * shape["attention_dp"]) == 0
    cut = instance.operations.moe is not None and shape["slots"] == 0
    ranks = Ranks(shape["attention_dp"], runs, even, cut)
    return moved_by(instance, exchange_of(instance, chip, ROLES[shape["role"]], ranks), cut=cut)
