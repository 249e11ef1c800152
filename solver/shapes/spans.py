"""Spans: replicas on unequal numbers of chips of one type, in pools alike or unlike.

The other ways to stand take the same number of chips in each of several pools of one class. A span
takes any number in each: four, four and two where nodes are partly taken or broken. On few pools every
such choice is tried; where that would be too many, equal numbers in pools of one class; else whole pools and
equal numbers over unlike ones. Beside these, pools are filled: as many whole stages in each as it holds, and the rest in
one more. Classes of so many pools that the fleet model does not tell them apart
have none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations_with_replacement, product
from math import comb, prod
from typing import Literal

from solver.shapes.pools import Pool, PoolClass
from topology import Cluster

#: chips taken in each pool as ``(pool class, chips)``, by class, most chips first
Parts = tuple[tuple[int, int], ...]

Kind = Literal["every", "by_class", "even", "none"]

#: most spans of one chip type: each may become an item of the fleet model
MOST_SPANS = 128


@dataclass(frozen=True)
class SpanFamily:
    """The spans of one chip type.

    ``kind``: ``every`` choice of chips per pool, ``by_class`` equal numbers within a class, ``even`` whole
    pools or equal numbers, ``none``; ``filled``: beside these, pools filled with whole stages but for the last.
    """

    chip: str
    kind: Kind
    spans: tuple[Parts, ...]
    filled: bool = False


def span_families(
    classes: Sequence[PoolClass], most_domains: int, stages: int
) -> tuple[SpanFamily, ...]:
    """Spans of each chip type that lies in at least two domains, of replicas of up to so many stages."""
    by_type: dict[str, list[PoolClass]] = {}
    for pool_class in classes:
        if pool_class.cut_off:
            continue  # the same domain's largest part would not reach it
        by_type.setdefault(pool_class.chip.name, []).append(pool_class)
    found = []
    for chip, own in by_type.items():
        if sum(len(c.pools) for c in own) < 2:
            continue
        few = all(c.few for c in own)
        ways: list[tuple[Kind, int, Iterator[Parts]]] = [
            ("every", prod(comb(c.size + len(c.pools), c.size) for c in own), _every(own))
        ]
        if len(own) > 1:
            least = min(c.size for c in own)
            ways += [
                ("by_class", prod(1 + len(c.pools) * c.size for c in own), _by_class(own)),
                ("even", prod(len(c.pools) + 1 for c in own) * (1 + least), _even(own)),
            ]
        family = SpanFamily(chip, "none", ())
        for kind, most, spans in ways:
            if few and most <= MOST_SPANS:
                family = SpanFamily(chip, kind, _distinct(spans, most_domains))
                break
        if few and family.kind != "every":
            filled = _distinct(chain(family.spans, _filled(own, stages)), most_domains)
            if len(filled) <= MOST_SPANS:
                family = SpanFamily(chip, family.kind, filled, filled=True)
        found.append(family)
    return tuple(found)


def _every(classes: Sequence[PoolClass]) -> Iterator[Parts]:
    """Any number of chips in each pool; pools of a class are alike, so their order does not matter."""
    ways = [combinations_with_replacement(range(c.size, -1, -1), len(c.pools)) for c in classes]
    for chosen in product(*ways):
        yield tuple(
            (c.index, chips)
            for c, numbers in zip(classes, chosen, strict=True)
            for chips in numbers
            if chips
        )


def _by_class(classes: Sequence[PoolClass]) -> Iterator[Parts]:
    """Equally many chips in each pool taken of a class."""
    ways = [
        [()]
        + [
            ((c.index, n),) * count
            for n in range(1, c.size + 1)
            for count in range(1, len(c.pools) + 1)
        ]
        for c in classes
    ]
    for chosen in product(*ways):
        yield tuple(part for parts in chosen for part in parts)


def _even(classes: Sequence[PoolClass]) -> Iterator[Parts]:
    """Whole pools, or equally many chips in each."""
    for counts in product(*(range(len(c.pools) + 1) for c in classes)):
        used = [(c, count) for c, count in zip(classes, counts, strict=True) if count]
        if used:
            yield tuple((c.index, c.size) for c, count in used for _ in range(count))
            for chips in range(1, min(c.size for c, _ in used) + 1):
                yield tuple((c.index, chips) for c, count in used for _ in range(count))


def _filled(classes: Sequence[PoolClass], stages: int) -> Iterator[Parts]:
    """Stages of any width, as many in each pool as it holds and the rest in one more, the largest pools first."""
    pools = [c for c in sorted(classes, key=lambda own: -own.size) for _ in c.pools]
    for width in range(1, pools[0].size + 1):
        full: list[tuple[int, int]] = []
        left = stages
        for own in pools:
            held = min(own.size // width, left)
            for number in range(1, held + 1):
                parts = [*full, (own.index, number * width)]
                yield tuple(sorted(parts, key=lambda part: (part[0], -part[1])))
            full.append((own.index, held * width))
            left -= held
            if not (held and left):
                break


def _distinct(spans: Iterator[Parts], most_domains: int) -> tuple[Parts, ...]:
    """Without those that stand in one pool, or evenly in one class as other shapes do."""
    return tuple(
        dict.fromkeys(
            parts for parts in spans if 1 < len(parts) <= most_domains and len(set(parts)) > 1
        )
    )


def joined_best(cluster: Cluster, classes: Sequence[PoolClass], parts: Parts) -> bool:
    """Whether no other pools of a replica are joined better than those that stand for them (:func:`pools_of`).

    So in one unit of the network, where there is no choice, and where every domain is a unit with equal links.
    """
    network = cluster.network
    chosen = pools_of(parts, classes)
    if network is None or len({network.unit(pool.domain) for pool in chosen}) == 1:
        return True
    own = [pool for index in {index for index, _ in parts} for pool in classes[index].pools]
    if len(own) == len(chosen):
        return True
    units = Counter(network.unit(pool.domain) for pool in own)
    return max(units.values()) == 1 and len({network.unit_bytes_per_s(u) for u in units}) == 1


def joined_as_priced(
    cluster: Cluster, classes: Sequence[PoolClass], parts: Parts, pools: Sequence[Pool]
) -> bool:
    """Whether a replica on these pools is joined as on those that stand for them."""
    network = cluster.network
    if network is None or len(parts) < 2:
        return True
    here, there = (
        len({network.unit(pool.domain) for pool in own})
        for own in (pools, pools_of(parts, classes))
    )
    return here == 1 if there == 1 else joined_best(cluster, classes, parts)


def pools_of(parts: Parts, classes: Sequence[PoolClass]) -> list[Pool]:
    """Pools that stand for those of a replica: the first ones of each class."""
    used = dict.fromkeys((index for index, _ in parts), 0)
    pools = []
    for index, _ in parts:
        pools.append(classes[index].pools[used[index]])
        used[index] += 1
    return pools
