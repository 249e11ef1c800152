"""Layouts around an answer: a sequence more or fewer on some ranks, a replica fewer, the same on other domains."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from costmodel.layout.layout import KvShare, Layout, Replica
from topology import Cluster

#: layouts made around one answer at most
_MOST = 12
#: orders of domains alike that are tried
_ORDERS = 6


def neighbours(layout: Layout) -> Iterator[tuple[str, Layout]]:
    """Up to a dozen layouts with what was changed. Replicas alike are changed alike, and one alone."""
    made = 0
    alike: dict[object, list[int]] = {}
    for index, replica in enumerate(layout.replicas):
        alike.setdefault((replica.role, replica.shape), []).append(index)
    for indices in alike.values():
        first = layout.replicas[indices[0]]
        for words, change in _changes(first):
            for chosen in {tuple(indices), tuple(indices[:1])}:
                if made == _MOST:
                    return
                changed = _with(layout, chosen, change)
                if changed is not None:
                    made += 1
                    yield f"{first.role}: {words} in {len(chosen)} replicas", changed
    if len(layout.replicas) > 1 and made < _MOST:
        yield (
            "the last replica left out",
            layout.model_copy(update={"replicas": layout.replicas[:-1]}),
        )


def elsewhere(cluster: Cluster, layout: Layout, draw: Random) -> Iterator[tuple[str, Layout]]:
    """The layout on domains alike in another order, which may lie in other units of the network."""
    used = {cluster.chip(chip).domain for replica in layout.replicas for chip in replica.chips}
    groups = {cluster.alike(domain) for domain in sorted(used)}
    if cluster.network is None or all(len(group) == 1 for group in groups):
        return
    text = layout.model_dump_json()
    for turn in range(_ORDERS):
        moved: dict[int, int] = {}
        for group in sorted(groups):
            moved |= dict(zip(group, draw.sample(group, len(group)), strict=True))
        names = {f"r{domain}g": f"r{moved[domain]}g" for domain in used}
        renamed = re.sub(r"(?<=\")r\d+g(?=\d+\")", partial(_new_name, names), text)
        yield f"domains alike in another order ({turn})", Layout.model_validate_json(renamed)


def _new_name(names: dict[str, str], found: re.Match[str]) -> str:
    return names[found[0]]


def _changes(replica: Replica) -> Iterator[tuple[str, Callable[[Replica], Replica | None]]]:
    ranks = replica.shape.attention_dp
    yield "a sequence more on rank 0", lambda found: shifted(found, [0], 1)
    yield "a sequence fewer on the last rank", lambda found: shifted(found, [ranks - 1], -1)
    if ranks > 2:
        half = list(range(ranks // 2))
        yield "a sequence more on half of the ranks", lambda found: shifted(found, half, 1)
    if ranks > 1:
        most = list(range(1, ranks))
        yield "a sequence fewer on all but rank 0", lambda found: shifted(found, most, -1)


def _with(
    layout: Layout, indices: tuple[int, ...], change: Callable[[Replica], Replica | None]
) -> Layout | None:
    replicas = list(layout.replicas)
    for index in indices:
        changed = change(replicas[index])
        if changed is None:
            return None
        replicas[index] = changed
    return layout.model_copy(update={"replicas": tuple(replicas)})


def shifted(replica: Replica, ranks: list[int], more: int) -> Replica | None:
    """A replica with ``more`` sequences on each of some ranks; ``None`` where a rank has too few."""
    counts = replica.rank_sequences()
    if any(counts[rank] + more < 1 or counts[rank] < 1 for rank in ranks):
        return None
    tp = replica.shape.tp
    rank_of = {
        chip: place // tp for stage in replica.stages for place, chip in enumerate(stage.chips)
    }
    homes: dict[int, int] = {}
    for index, share in enumerate(replica.kv):
        rank = rank_of[share.chip]
        if rank in ranks and not share.idle and share.sequences + more >= 0:
            homes.setdefault(rank, index)
    if set(homes) != set(ranks):
        return None
    shares: list[KvShare] = []
    for index, share in enumerate(replica.kv):
        rank = rank_of[share.chip]
        if share.idle or rank not in ranks:
            shares.append(share)
            continue
        own = share.sequences + (more if homes[rank] == index else 0)
        shares.append(share.model_copy(update={"sequences": own, "bytes": None}))
    batch = replica.shape.batch + more * len(ranks)
    shape = replica.shape.model_copy(update={"batch": batch})
    return replica.model_copy(update={"shape": shape, "kv": tuple(shares)})
