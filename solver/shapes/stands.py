"""Named chips where neighbours matter: sets that a shape may stand on, in the order of its stages and ranks.

On a torus, or where links failed, what a replica costs depends on which chips it has. The topology names
the sets worth trying (:meth:`topology.fabric.Fabric.blocks`) and how to cut each into stages and ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from solver.shapes.pools import Pool, PoolClass
from topology import Cluster
from topology.routing.blocks import ChipBlock, by_speed

#: chips named stage by stage, rank by rank
Stand = tuple[tuple[str, ...], ...]

#: sets of chips asked for, and of these the most that a replica is tried on
_BLOCKS, _TRIED = 32, 5


def neighbours_matter(cluster: Cluster, domain: int) -> bool:
    """Whether sets of equally many chips of a domain differ by the links between them."""
    return not cluster.domains[domain].fabric.interchangeable_chips


def every_set(cluster: Cluster, classes: Sequence[PoolClass]) -> bool:
    """Whether every set of chips is looked at wherever neighbours matter, and they do somewhere."""
    pools = [c.pools[0] for c in classes if neighbours_matter(cluster, c.domain)]
    return bool(pools) and all(
        cluster.domains[pool.domain].fabric.every_set_of(
            [cluster.chip(chip).position for chip in pool.chips]
        )
        for pool in pools
    )


def apart(cluster: Cluster, pools: Sequence[Pool]) -> bool:
    """Whether neighbours matter in any of the pools."""
    return any(neighbours_matter(cluster, pool.domain) for pool in pools)


def sets_of(
    cluster: Cluster, domain: int, free: Sequence[str], count: int, *, gathers: bool, whole: bool
) -> list[ChipBlock]:
    """Sets of ``count`` of the ``free`` chips of a domain that no other is quicker than in all respects.

    ``whole``: sets that a replica may take as they are, not parts of what it takes.
    """
    home = cluster.domains[domain]
    places = sorted(cluster.chip(chip).position for chip in free)
    of = home.granularity if whole else home.fabric
    return of.quickest(places, count, _BLOCKS, gathers=gathers)


def stages_apart(cluster: Cluster, domain: int) -> bool:
    """Whether each stage of a replica may stand on a set of its own.

    A large set that is quick as a whole seldom falls into quick small ones.
    """
    return not cluster.domains[domain].granularity.said


def named(domain: int, block: ChipBlock) -> list[str]:
    """Ids of the chips of a set."""
    return [f"r{domain}g{position}" for position in block.chips]


def stands(
    cluster: Cluster,
    shape: dict[str, int],
    slices: Sequence[tuple[Pool, Sequence[str], int]],
) -> Iterator[Stand]:
    """Ways to stand on slices ``(pool, its free chips, how many of them)``, each once.

    The same choice is made in every slice: the first set in each, then the second.
    """
    width, pp = shape["tp"] * shape["attention_dp"], shape["pp"]
    cut = shape["attention_dp"] > 1 and not shape["slots"]  # ranks gather all tokens
    choices = [
        list(
            _orders(cluster, pool.domain, free, count, min(width, count), shape["tp"], gathers=cut)
        )
        for pool, free, count in slices
    ]
    seen: set[Stand] = set()
    for turn in range(max(len(own) for own in choices)):
        flat = [chip for own in choices for chip in own[min(turn, len(own) - 1)]]
        stand = tuple(tuple(flat[s * width : (s + 1) * width]) for s in range(pp))
        if stand not in seen:
            seen.add(stand)
            yield stand


def _orders(
    cluster: Cluster,
    domain: int,
    free: Sequence[str],
    count: int,
    width: int,
    tp: int,
    *,
    gathers: bool,
) -> Iterator[list[str]]:
    """Chips of one slice, cut into stages and these into ranks in every way worth trying."""
    fabric = cluster.domains[domain].fabric
    if not neighbours_matter(cluster, domain):
        yield list(free[:count])
        return
    for stages in _stages(cluster, domain, free, count, width, gathers=gathers or tp == count):
        ranks = [fabric.cuts(stage, tp) if tp < width else [[stage]] for stage in stages]
        for turn in range(max(len(own) for own in ranks)):
            groups = [group for own in ranks for group in own[min(turn, len(own) - 1)]]
            yield [f"r{domain}g{position}" for group in groups for position in group]


def _stages(
    cluster: Cluster, domain: int, free: Sequence[str], count: int, width: int, *, gathers: bool
) -> Iterator[list[tuple[int, ...]]]:
    """Chips of each stage: as they are given, each on a set of its own, or a quick set for all, cut."""
    fabric = cluster.domains[domain].fabric
    several = width < count and count % width == 0
    places = [cluster.chip(chip).position for chip in free]
    if several and len(free) == count:
        yield [tuple(sorted(places[at : at + width])) for at in range(0, count, width)]
    elif several and stages_apart(cluster, domain):
        yield from fabric.side_by_side(places, width, count // width)
    sets = sets_of(cluster, domain, free, count, gathers=gathers, whole=True)
    for block in by_speed(sets)[:_TRIED]:
        yield from fabric.cuts(block.chips, width) if several else [[block.chips]]
