"""Least that collectives take where neighbours matter: on the quickest of the sets that a shape may stand on.

A set that reduces soonest may be far apart, one close together may have few links: each pair of latency and
seconds per byte that no set beats in both is a way of its own to bound a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations

import numpy as np

from costmodel.passes.communication import NEVER_S, GroupRates, achieved, exchange_rate
from costmodel.question.instance import Instance
from solver.shapes.group_rates import moved_for
from solver.shapes.pools import Pool, PoolClass
from solver.shapes.spans import Parts, pools_of
from solver.shapes.stands import named, sets_of
from topology import Cluster, Rate

#: chips up to which every pair is asked what a message between them takes
EVERY_PAIR = 32

#: ways that a shape is bounded in at most
_MOST_WAYS = 6

#: latency and seconds per byte of a collective
_Cost = tuple[float, float]


@dataclass
class KnownSets:
    """What others have been bounded by: sets of chips by cluster, pool, number and use, and costs on them."""

    sets: dict[Hashable, list[tuple[list[str], float]]] = field(default_factory=dict)
    costs: dict[Hashable, list[_Cost]] = field(default_factory=dict)

    def cost(self, key: Hashable, find: Callable[[], list[_Cost]]) -> list[_Cost]:
        """The costs under a key, worked out where they are not known."""
        if key not in self.costs:
            self.costs[key] = find()
        return self.costs[key]


_NONE = (0.0, 0.0)
_NEVER = (NEVER_S, 0.0)


def least_rates(
    instance: Instance,
    classes: Sequence[PoolClass],
    parts: Parts,
    shape: Mapping[str, int],
    known: KnownSets,
) -> list[GroupRates]:
    """Latencies and seconds per byte of a shape's collectives, one entry for each way worth bounding.

    No set of chips that is tried has more in any entry than in all of them. ``shape``: a row of a
    :class:`solver.shapes.shapes.ShapeTable`, on ``parts``; ``known``: what others have been bounded by.
    """
    tp, pp = shape["tp"], shape["pp"]
    stage_chips = tp * shape["attention_dp"]
    cluster = instance.cluster
    pools = pools_of(parts, classes)
    efficiency = instance.profile.for_chip(pools[0].chip.name)
    every = tuple((pool.domain, pool.part, pool.chip.name) for pool in pools)
    alike = dict(zip(every, pools, strict=True))
    places, distinct = tuple(alike), list(alike.values())
    moe = instance.operations.moe
    shares = (
        cluster,
        efficiency.all_reduce,
        efficiency.all_to_all,
        moe.top_k if moe is not None else 0,
    )
    reduce, dispatch, send = [_NONE], [_NONE], _NONE
    if tp > 1:
        alone = parts == ((parts[0][0], tp),)
        reduce = known.cost(
            ("all-reduce", shares, places, tp, alone),
            lambda: _front(
                _at_least(
                    achieved(partial(cluster.rate, "all-reduce", chips), efficiency.all_reduce),
                    2 * hops_s,
                )
                for pool in distinct
                for chips, hops_s in _sets(known, cluster, pool, tp, gathers=True, whole=alone)
            ),
        )
    counts = [count for _, count in parts]
    moved = moved_for(instance, pools[0].chip, shape, [counts] if pp == 1 else [[stage_chips]] * pp)
    if moe is not None and stage_chips > 1:
        wide = len(parts) > 1 and pp == 1
        alone = len(parts) == pp == 1
        dispatch = known.cost(
            (
                "dispatch",
                shares,
                (every, tuple(counts)) if wide else places,
                stage_chips,
                alone,
                moved,
            ),
            lambda: _front(
                _at_least(
                    moved.rate(
                        partial(exchange_rate, cluster, chips, moe.top_k, moved),
                        stage_chips,
                        efficiency,
                    ),
                    hops_s,
                )
                for chips, hops_s in (
                    _together(known, cluster, pools, counts, gathers=moved.gathers)
                    if wide
                    else [
                        one
                        for pool in distinct
                        for one in _sets(
                            known, cluster, pool, stage_chips, gathers=moved.gathers, whole=alone
                        )
                    ]
                )
            ),
        )
    if pp > 1:
        inside = any(count > stage_chips for count in counts)
        (send,) = known.cost(
            ("send", shares, every[:2], places if inside else ()),
            lambda: [_sent(cluster, pools, distinct if inside else (), efficiency.all_to_all)],
        )
    if len(reduce) * len(dispatch) > _MOST_WAYS:
        reduce = [_least(reduce)]
    return [
        GroupRates(*(np.asarray(value) for value in (*one, *other, *send, *moved.numbers)))
        for one in reduce
        for other in dispatch
    ]


def _sent(cluster: Cluster, pools: Sequence[Pool], inside: Sequence[Pool], share: float) -> _Cost:
    """Of a message from stage to stage: between the first two pools, and between chips of those that hold two stages."""
    ways: list[Callable[[], Rate]] = []
    if len(pools) > 1:
        ways.append(partial(cluster.rate, "send", (pools[0].chips[0], pools[1].chips[0])))
    ways += [partial(least_send, cluster, pool) for pool in inside]
    return _least([achieved(find, share) for find in ways])


def least_send(cluster: Cluster, pool: Pool) -> Rate:
    """Least latency and least seconds per byte of a message between two chips of a pool.

    On many chips the seconds per byte are those of all ports of the widest chip together.
    """
    if len(pool.chips) < 2:
        return Rate(0.0, 0.0, 0.0, 0.0, "none")
    if len(pool.chips) <= EVERY_PAIR:
        rates = [cluster.rate("send", pair) for pair in combinations(pool.chips, 2)]
        s_per_byte = min(rate.s_per_byte for rate in rates)
    else:
        rates = [cluster.rate("send", chips) for chips, _ in _sets(KnownSets(), cluster, pool, 2)]
        fabric = cluster.domains[pool.domain].fabric
        s_per_byte = 1.0 / max(fabric.width(cluster.chip(chip).position) for chip in pool.chips)
    latency = min(rate.latency_s for rate in rates)
    return Rate(latency, s_per_byte, s_per_byte, latency, rates[0].busiest_link)


def _sets(
    known: KnownSets,
    cluster: Cluster,
    pool: Pool,
    count: int,
    *,
    gathers: bool = False,
    whole: bool = False,
) -> list[tuple[list[str], float]]:
    """Sets to bound by, with seconds that sets that are passed over for them may be quicker to begin.

    Of every set the quickest are taken by bytes and by hops of the domain; a gather that keeps to a set's own links may
    have more hops than those of another with the same two.
    """
    key = cluster, pool.domain, pool.part, pool.chip.name, count, gathers, whole
    if key not in known.sets:
        known.sets[key] = _found(cluster, pool, count, gathers=gathers, whole=whole)
    return known.sets[key]


def _found(
    cluster: Cluster, pool: Pool, count: int, *, gathers: bool, whole: bool
) -> list[tuple[list[str], float]]:
    if count > len(pool.chips):
        return []
    sets = sets_of(cluster, pool.domain, pool.chips, count, gathers=gathers, whole=whole)
    every = cluster.domains[pool.domain].fabric.every_set_of(
        [cluster.chip(chip).position for chip in pool.chips]
    )
    return [(named(pool.domain, one), one.latency_s if every else np.inf) for one in sets]


def _at_least(found: tuple[float, float], hops_s: float) -> tuple[float, float]:
    """Latency and seconds per byte of a set and of all sets that are passed over for it."""
    return (min(found[0], hops_s), found[1]) if found != _NEVER else found


def _together(
    known: KnownSets,
    cluster: Cluster,
    pools: Sequence[Pool],
    counts: Sequence[int],
    *,
    gathers: bool,
) -> list[tuple[list[str], float]]:
    """Sets over several pools: the first of each, the second of each, and so on."""
    own = [
        _sets(known, cluster, pool, count, gathers=gathers, whole=True)
        for pool, count in zip(pools, counts, strict=True)
    ]
    return [
        ([chip for sets in own for chip in sets[min(turn, len(sets) - 1)][0]], np.inf)
        for turn in range(max(len(sets) for sets in own))
    ]


def _front(costs: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Latencies with seconds per byte of which no other pair has less of both."""
    kept: list[tuple[float, float]] = []
    for latency, s_per_byte in sorted(set(costs)):
        if not kept or s_per_byte < kept[-1][1] * (1 - 1e-12):
            kept.append((latency, s_per_byte))
    return kept


def _least(costs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return min(latency for latency, _ in costs), min(s_per_byte for _, s_per_byte in costs)
